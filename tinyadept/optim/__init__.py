"""Optimisers, schedules of their learning rates, and limits on gradients."""

from . import schedulers as lr_scheduler
from .clip import clip_grad_norm_, clip_grad_value_
from .optimizers import SGD, Adam, AdamW, Optimizer, RMSprop
from .schedulers import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

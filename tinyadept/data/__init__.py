"""Data that models are trained on."""

from . import digits

__all__ = ["digits"]

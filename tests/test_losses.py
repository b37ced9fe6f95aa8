"""Losses as modules, against PyTorch."""

import numpy as np
import pytest

from tinyadept import nn, tensor

RNG = np.random.default_rng(1)
REAL, OTHER = RNG.normal(size=(2, 5, 3)).astype(np.float32)
CHANCE, PROBABILITIES = RNG.uniform(0.05, 0.95, size=(2, 5, 3)).astype(np.float32)
CLASSES = np.array([0, 2, 1, -100, 2])
WEIGHT = np.array([1.0, 2.0, 0.5], np.float32)

LOSSES = [
    ("MSELoss", {}, REAL, OTHER),
    ("L1Loss", {}, REAL, OTHER),
    ("SmoothL1Loss", {"beta": 0.5}, REAL, OTHER),
    ("HuberLoss", {"delta": 0.7}, REAL, OTHER),
    ("CrossEntropyLoss", {"weight": WEIGHT, "label_smoothing": 0.1}, REAL, CLASSES),
    ("CrossEntropyLoss", {"ignore_index": 2}, REAL, np.array([0, 1, 2, 1, 2])),
    ("CrossEntropyLoss", {}, REAL, PROBABILITIES),
    ("NLLLoss", {"weight": WEIGHT}, REAL, CLASSES),
    ("BCELoss", {"weight": WEIGHT}, CHANCE, PROBABILITIES),
    ("BCEWithLogitsLoss", {"weight": WEIGHT, "pos_weight": WEIGHT}, REAL, PROBABILITIES),
    ("KLDivLoss", {}, REAL, PROBABILITIES),
    ("KLDivLoss", {"log_target": True, "reduction": "batchmean"}, REAL, OTHER),
]


@pytest.mark.parametrize(("name", "options", "input", "target"), LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_loss_agrees_with_torch(name, options, input, target, reduction):
    torch = pytest.importorskip("torch")
    options = {"reduction": reduction, **options}
    arrays = [key for key in options if isinstance(options[key], np.ndarray)]
    ours = getattr(nn, name)(**{**options, **{key: tensor(options[key]) for key in arrays}})
    theirs = getattr(torch.nn, name)(**{**options, **{key: torch.tensor(options[key]) for key in arrays}})
    x, y = tensor(input, requires_grad=True), torch.tensor(input, requires_grad=True)
    a, b = ours(x, tensor(target)), theirs(y, torch.tensor(target))
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
    a.sum().backward()
    b.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert list(ours.state_dict()) == list(theirs.state_dict())

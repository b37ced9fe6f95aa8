"""Losses as modules, against PyTorch."""

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn, tensor, zeros

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


def test_labels_are_not_narrowed():
    with pytest.raises(IndexError, match="4294967296 is out of range"):
        F.cross_entropy(zeros(2, 3), tensor([0, 2**32], dtype="int64"))
    assert F.cross_entropy(zeros(2, 4), tensor([0, 3], dtype="uint8")).item() == pytest.approx(np.log(4))


def test_xlogy_has_a_slope_at_zero():
    x, y = tensor([0.0, 0.0, 0.0], requires_grad=True), tensor([2.0, 0.0, np.nan])
    out = F.xlogy(x, y)
    out.sum().backward()
    np.testing.assert_allclose(out.detach().numpy(), [0, 0, np.nan])
    np.testing.assert_allclose(x.grad.numpy(), [np.log(2), 0, np.nan], rtol=1e-6)


def test_binary_cross_entropy_of_certainty_has_a_finite_slope():
    p = tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, tensor([0.0, 1.0, 1.0, 0.0]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 100, 100]
    np.testing.assert_allclose(p.grad.numpy(), [1, -1, -1e12, 1e12], rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 3), (5, 4), (6, 2, 3)])
def test_dispersive_loss_against_a_loop(shape, device):
    z = np.random.default_rng(0).normal(size=shape)
    x = ta.tensor(z.astype(np.float32), device=device, requires_grad=True)
    loss = F.dispersive_loss(x, temperature=2.0)
    pairs = [np.exp(-np.square(a - b).sum() / 2) for a in z for b in z]
    assert loss.item() == pytest.approx(np.log(np.mean(pairs)), rel=1e-5, abs=1e-6)
    loss.backward()
    wanted = [sum(np.exp(-np.square(a - b).sum() / 2) * -2 * (a - b) for b in z) / np.sum(pairs) for a in z]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_dispersive_loss_of_what_is_alike_and_of_what_is_far_apart():
    assert F.dispersive_loss(ta.ones(4, 3)).item() == pytest.approx(0, abs=1e-6)
    assert F.dispersive_loss(ta.eye(4) * 1000).item() == pytest.approx(-np.log(4))
    with pytest.raises(ValueError, match="at least 1"):
        F.dispersive_loss(ta.zeros(0, 3))

"""Initial values: distributed as PyTorch's, and the same for the same seed."""

import math

import numpy as np
import pytest

from tinyadept import nn, tensor
from tinyadept.models.lenet import LeNet
from tinyadept.nn import init
from tinyadept.random import manual_seed, randn


@pytest.mark.parametrize("shape", [(60, 50), (30, 20, 3, 3)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kaiming_uniform_", {"a": math.sqrt(5)}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("uniform_", {"a": -2.0, "b": 1.0}),
        ("normal_", {"mean": 1.0, "std": 0.5}),
        ("trunc_normal_", {"std": 2.0}),
    ],
)
def test_initial_values_are_distributed_as_in_torch(name, options, shape):
    torch = pytest.importorskip("torch")
    manual_seed(3)
    torch.manual_seed(3)
    p = nn.Parameter(tensor(np.zeros(shape)))
    assert getattr(init, name)(p, **options) is p and p.requires_grad and p.is_leaf
    theirs = getattr(torch.nn.init, name)(torch.empty(shape), **options).numpy()
    ours = p.detach().numpy()
    assert abs(ours.mean() - theirs.mean()) < 0.1 * theirs.std() and abs(ours.std() / theirs.std() - 1) < 0.06
    if "uniform" in name or name == "trunc_normal_":
        np.testing.assert_allclose(
            [ours.min(), ours.max()], [theirs.min(), theirs.max()], rtol=0.02, atol=0.002
        )


def test_gains_agree_with_torch():
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(
        torch.nn.init.calculate_gain("leaky_relu", 0.3)
    )


def test_initial_values_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match=r"at least two axes, got shape \(3,\)"):
        init.kaiming_normal_(randn(3))
    with pytest.raises(ValueError, match="'fan_in' or 'fan_out', got 'fan'"):
        init.kaiming_uniform_(randn(3, 3), mode="fan")
    with pytest.raises(ValueError, match="no gain is known for 'gelu': expected one of leaky_relu, relu"):
        init.calculate_gain("gelu")
    with pytest.raises(ValueError, match=r"holds 0\.00% of a normal distribution of mean 9"):
        init.trunc_normal_(randn(3), mean=9.0)


def test_default_weights_lie_within_one_over_root_fan_in():
    manual_seed(0)
    for layer, fan in (
        (nn.Linear(64, 32), 64),
        (nn.Conv2d(8, 16, 3, groups=2), 36),
        (nn.Conv1d(4, 8, 5), 20),
    ):
        for p in layer.parameters():
            assert 0.5 < np.abs(p.numpy()).max() * math.sqrt(fan) <= 1
    assert nn.Linear(0, 3)(randn(2, 0)).shape == (2, 3)
    assert init.ones_(init.constant_(init.zeros_(randn(2)), 3.0)).tolist() == [1, 1]


def test_seed_makes_equal_weights():
    manual_seed(5)
    first = LeNet().state_dict()
    manual_seed(5)
    second = LeNet().state_dict()
    assert all(np.array_equal(first[name].numpy(), second[name].numpy()) for name in first)

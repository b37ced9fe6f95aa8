"""Activations that convolutions and linear layers apply as they write their results."""

import re
from importlib import resources

import numpy as np
import pytest
from conftest import DEVICES, absent, vulkan

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn, oracle
from tinyadept.backends.vulkan.debug import body
from tinyadept.backends.vulkan.drivers import conv_tiles
from tinyadept.backends.vulkan.drivers.matmul import TILES
from tinyadept.ops import registry
from tinyadept.ops.activation import ACTIVATIONS
from tinyadept.ops.convolution import using
from tinyadept.ops.table import apply
from tinyadept.view import View

RNG = np.random.default_rng(0)
X, W, B = (RNG.normal(size=s).astype(np.float32) for s in ((2, 6, 9, 9), (10, 6, 3, 3), (10,)))
ROWS, MATRIX, MORE, BESIDE = (
    RNG.normal(size=s).astype(np.float32) for s in ((19, 70), (33, 70), (33,), (19, 33))
)
GEOMETRY = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def given(array):
    return oracle.Given(array.ravel(), View.dense(array.shape))


def convolved(activation, w=W, **changes):
    params = {**GEOMETRY, **changes, "activation": activation}
    return oracle.Case(registry["conv"], tuple(map(given, (X, w, B[: len(w)]))), params)


@absent
@pytest.mark.parametrize(
    "tiles, path, parts, activation",
    [
        (False, "lanes", 1, "gelu"),
        (False, "winograd2", 1, "silu"),
        (True, "lanes", 1, "sigmoid"),
        (True, "tiles", 1, "silu"),
        (True, "tiles", 3, "tanh"),
        (True, "winograd4", 1, "relu"),
    ],
)
def test_each_way_to_convolve(tiles, path, parts, activation, monkeypatch):
    gpu, launched = vulkan(), []
    tile = conv_tiles.TILES[-1] if parts > 1 else conv_tiles.SHARED[0]
    monkeypatch.setattr(conv_tiles, "forced", (tile, parts))
    case = convolved(activation)
    with body(gpu, tiles, 4), using(path):
        gpu.queue.flush()
        gpu.queue.observers.append(launched.extend)
        try:
            if path == "winograd4":  # whose bound is another one
                expected = case.truth()
                np.testing.assert_allclose(case.run(gpu)[0].numpy(), expected, rtol=1e-4, atol=1e-4)
            else:
                oracle.check_forward(case, gpu.name)
        finally:
            gpu.queue.observers.remove(launched.extend)
    names = [entry.shader.name for entry in launched if entry is not None]
    assert not {"elementwise", "reduce"} & set(names) and names.count("join") == (parts > 1)


@absent
@pytest.mark.parametrize("squared", [False, True])
def test_groups_of_one_channel(squared):
    w = W[:6, :1] if squared else W[:6, :1, :, :2]
    with body(vulkan(), True, 4), using("depthwise"):
        oracle.check_forward(convolved("gelu_tanh", np.ascontiguousarray(w), groups=6), "vulkan")


@absent
@pytest.mark.parametrize("forced", [None, (TILES[-1], 1), (TILES[-1], 4)], ids=["cpu", "tiles", "parts"])
@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("added", [(MORE,), (MORE, BESIDE), (BESIDE,)], ids=["bias", "both", "residual"])
def test_linear_layers(forced, activation, added, monkeypatch):
    gpu, launched = vulkan(), []
    monkeypatch.setattr(gpu, "products", gpu.products._replace(tiled=forced is not None, forced=forced))
    inputs = tuple(map(given, (ROWS, MATRIX, *added)))
    case = oracle.Case(registry["linear"], inputs, {"activation": activation})
    gpu.queue.flush()
    gpu.queue.observers.append(launched.extend)
    try:
        oracle.check_forward(case, gpu.name)
    finally:
        gpu.queue.observers.remove(launched.extend)
    assert "elementwise" not in {entry.shader.name for entry in launched if entry is not None}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_gradients_are_those_of_two_ops(device, activation):
    """Of the first order and of the second."""
    found = []
    for fused in (True, False):
        x, w, b = (ta.tensor(a, device=device, requires_grad=True) for a in (X, W, B))
        if fused:
            y = F.conv2d(x, w, b, padding=1, activation=activation)
        else:
            y = apply(registry[activation], (F.conv2d(x, w, b, padding=1),), {})
        first = ta.grad((y * y).sum(), [x, w, b], create_graph=True)
        second = ta.grad(sum((g * g).sum() for g in first), [x, w])
        found.append([t.detach().numpy() for t in (y, *first, *second)])
    for fused, plain in zip(*found, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


def test_what_is_overwritten_is_noticed():
    w = ta.tensor(MATRIX, requires_grad=True)
    plain, rectified = F.linear(ta.tensor(ROWS), w), F.linear(ta.tensor(ROWS), w, activation="relu")
    plain.detach().mul_(2)
    plain.sum().backward()  # a product's own gradient does not need its result
    rectified.detach().mul_(2)
    with pytest.raises(RuntimeError, match="overwritten in place"):
        rectified.sum().backward()


@pytest.mark.parametrize("bias", [None, ta.tensor(MORE)], ids=["plain", "bias"])
@pytest.mark.parametrize("lead", [(), (19,), (1, 19)], ids=str)
def test_a_residual_is_added_before_the_activation(lead, bias):
    size = lead or (1,)
    x, w, r = ta.tensor(ROWS[: size[-1]].reshape(*lead, 70)), ta.tensor(MATRIX), ta.tensor(BESIDE)
    r = r[: size[-1]].reshape(*lead, 33)
    for residual in (r, ta.tensor(np.ascontiguousarray(r.numpy().T)).permute(*reversed(range(r.ndim)))):
        y = F.linear(x, w, bias, residual=residual, activation="relu")
        np.testing.assert_allclose(y.numpy(), F.relu(F.linear(x, w, bias) + r).numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="bias and residual"):
        F.linear(x, w, bias, residual=ta.tensor(BESIDE[:2, :2]))


def test_integers_and_unknown_names():
    x, w = ta.tensor([[1, -2]]), ta.tensor([[3, 1], [-1, 1]])
    assert F.linear(x, w, activation="relu").tolist() == [[1, 0]]
    assert F.linear(x, w, activation="relu").dtype == ta.int32
    with pytest.raises(TypeError, match="floating-point"):
        F.linear(x, w, activation="silu")
    with pytest.raises(ValueError, match="activation 'swish': expected one of relu, silu"):
        F.linear(x, w, activation="swish")
    with pytest.raises(ValueError, match=r"expected \(O, I\)"):
        F.linear(x, ta.tensor([1, 1]), activation="relu")


def test_modules_say_it_and_keep_their_state():
    plain, active = nn.Conv2d(6, 10, 3), nn.Conv2d(6, 10, 3, activation="silu")
    assert repr(active) == repr(plain)[:-1] + ", activation='silu')"
    assert repr(nn.Linear(2, 3, activation="relu")).endswith("bias=True, activation='relu')")
    active.load_state_dict(plain.state_dict())
    x = ta.tensor(X)
    np.testing.assert_allclose(active(x).detach().numpy(), F.silu(plain(x)).detach().numpy(), rtol=1e-5)


def test_kernels_number_them_as_the_table_does():
    source = (resources.files("tinyadept.glsl") / "activation.glsl").read_text(encoding="utf-8")
    cases = re.findall(r"case (\d+): return op_(\w+)\(v\);", source)
    assert [(int(number), name) for number, name in cases] == list(enumerate(ACTIVATIONS))[1:]

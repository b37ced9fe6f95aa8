"""Modules written as ONNX files: onnxruntime makes of them what the modules make."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tinyadept as ta
from tinyadept import functional as F
from tinyadept import nn
from tinyadept.models.digits import DigitsNet
from tinyadept.models.gpt2 import GPT2, Config
from tinyadept.models.unet import UNet
from tinyadept.models.yolo11 import YOLO11
from tinyadept.onnx import Refused, export, load

RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def same_in_onnxruntime(module, example, path, tolerance=1e-5):
    example = example if isinstance(example, tuple) else (example,)
    model = export(module, tuple(map(ta.tensor, example)), path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    for arrays in (example, tuple(others(x) for x in example)):  # also what it was not written with
        got: Any = session.run(None, dict(zip(names, arrays, strict=True)))
        with ta.no_grad():
            expected = module(*map(ta.tensor, arrays))
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.numpy().dtype
            scale = np.abs(b.numpy()).max(initial=1.0, where=np.isfinite(b.numpy()))
            np.testing.assert_allclose(a, b.numpy(), rtol=tolerance, atol=tolerance * scale)
    return model


def others(x):
    """Another array of this shape."""
    return x[..., ::-1].copy() if x.dtype.kind == "f" else np.roll(x, 1)


def settled(module):
    """With running statistics that are not those of a new module."""
    for name, x in module.state_dict().items():
        if name.endswith("running_mean"):
            x.copy_(ta.tensor(drawn(*x.shape) * 0.1))
        elif name.endswith("running_var"):
            x.copy_(ta.tensor(RNG.uniform(0.5, 2, x.shape).astype(np.float32)))
    return module.eval()


MODELS = {
    "digits": (lambda: DigitsNet(), lambda: drawn(2, 1, 8, 8)),
    "yolo11n": (lambda: YOLO11("n"), lambda: RNG.random((1, 3, 64, 96)).astype(np.float32)),
    **{
        f"unet {up}": (
            lambda up=up: UNet(4, 3, width=4, depth=2, upwards=up),
            lambda: RNG.random((2, 3, 16, 24)).astype(np.float32),
        )
        for up in ("transposed", "nearest", "bilinear")
    },
    "gpt2": (
        lambda: GPT2(Config(vocab_size=60, n_positions=16, n_embd=32, n_layer=2, n_head=4)),
        lambda: RNG.integers(0, 60, (2, 9)).astype(np.int32),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    make, example = MODELS[name]
    module = settled(make())
    same_in_onnxruntime(module, example(), tmp_path / "model.onnx", 1e-4)


def test_a_fused_detector(tmp_path):
    same_in_onnxruntime(settled(YOLO11("n")).fuse(), drawn(1, 3, 64, 64), tmp_path / "model.onnx", 1e-4)


@pytest.mark.parametrize("device", ["numpy"])
def test_it_is_read_again(tmp_path, device):
    module, x = settled(DigitsNet()), drawn(3, 1, 8, 8)
    export(module, ta.tensor(x), tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    with ta.no_grad():
        np.testing.assert_allclose(
            model.run({"input": x})["output"], module(ta.tensor(x)).numpy(), rtol=1e-5, atol=1e-5
        )


FUNCTIONS = {
    "activations": lambda x: [
        f(x)
        for f in (
            F.relu,
            F.silu,
            F.mish,
            F.hardswish,
            F.hardsigmoid,
            F.elu,
            F.leaky_relu,
            F.softplus,
            F.gelu,
            F.tanh,
            F.sigmoid,
            lambda x: F.gelu(x, "tanh"),
            lambda x: F.elu(x, 0.3),
            lambda x: F.softplus(x, 2.0),
        )
    ],
    "arithmetic": lambda x: [
        x + 1,
        2 - x,
        x * x,
        x / (x * x + 1),
        -x,
        x.abs().sqrt(),
        (x * x + 1).rsqrt(),
        x.exp(),
        x.clamp(-0.5, 0.7),
        x**2,
        x.square(),
        F.maximum(x, x.flip(-1)),
        (x > 0) & (x != 0.5),
        F.where(x > 0, x, 0.0),
        x.round(),
        x.sign(),
    ],
    "moves": lambda x: [
        x[..., 1:-1],
        x[:, 0],
        x.flip(-1),
        x[::2, None],
        x.transpose(0, 1),
        x.reshape(-1),
        x.sum(0).expand(3, 4, 6),
        F.cat([x, x * 2], 1),
        F.stack([x, x + 1], -1),
        x.mT @ x,
        x.to("int32"),
        x.unsqueeze(0).squeeze(),
        x[:, -1:],
    ],
    "reductions": lambda x: [
        x.sum(),
        x.mean((0, 2)),
        x.amax(1),
        x.min(2).values,
        x.logsumexp(-1),
        x.softmax(1),
        x.log_softmax(0),
        x.prod(1),
    ],
    "norms": lambda x: [
        F.layer_norm(x, (6,)),
        F.layer_norm(x, (6,), x[0, 0].detach() * 0 + 2, x[0, 1].detach() * 0 + 1),
        F.rms_norm(x, (6,)),
        F.rms_norm(x, (4, 6), x[0] * 0 + 3),
        F.group_norm(x, 2),
    ],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, tmp_path):
    same_in_onnxruntime(FUNCTIONS[name], drawn(3, 4, 6), tmp_path / "model.onnx")


WINDOWS = {
    "asymmetric": lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, 1)), w, stride=2, dilation=(1, 2)),
    "groups": lambda x, w: F.conv2d(x, w[:, :2], padding="same", groups=2, activation="silu"),
    "transposed": lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, dilation=1),
    "max ceil": lambda x, w: F.max_pool2d(x, 3, 2, 1, ceil_mode=True) + w.sum() * 0,
    "average": lambda x, w: (
        F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) + w.sum() * 0
    ),
    "divisor": lambda x, w: F.avg_pool2d(x, 2, divisor_override=3) + w.sum() * 0,
    "adaptive": lambda x, w: F.adaptive_avg_pool2d(x, 1) + w.sum() * 0,
    "nearest": lambda x, w: F.interpolate(x, scale_factor=1.5) + w.sum() * 0,
    "nearest-exact": lambda x, w: F.interpolate(x, size=(13, 5), mode="nearest-exact") + w.sum() * 0,
    "corners": lambda x, w: F.interpolate(x, size=(13, 5), mode="bilinear", align_corners=True) + w.sum() * 0,
    "attention": lambda x, w: (
        F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], is_causal=True, enable_gqa=True) + w.sum() * 0
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, tmp_path):
    same_in_onnxruntime(WINDOWS[name], (drawn(2, 4, 9, 8), drawn(4, 4, 3, 3)), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "function, match",
    [
        (lambda x: x.sort().values, "argsort has no counterpart"),
        (lambda x: x.add_(1), "writes over an input"),
        (lambda x: nn.BatchNorm1d(4)(x), "moments has no counterpart"),
        (lambda x: (x, 3), "is a int, expected a tensor"),
    ],
)
def test_what_cannot_be_written_is_refused(function, match, tmp_path):
    with pytest.raises(Refused, match=match):
        export(function, ta.tensor(drawn(3, 4)), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_names_fit_inputs(tmp_path):
    with pytest.raises(ValueError, match="expected one for each"):
        export(lambda x: x + 1, ta.tensor(drawn(2)), tmp_path / "model.onnx", names=["a", "b"])

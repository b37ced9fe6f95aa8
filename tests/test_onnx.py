"""Models from ONNX files: what the package onnx expects of them, where values live, what can be trained."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from conftest import DEVICES, run_python
from onnx import TensorProto, helper, numpy_helper

import tinyadept as ta
from scripts import onnx_conformance as conformance
from tinyadept.device import resolve
from tinyadept.onnx import Refused, folding, load, operator

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)


def value(name: str, shape: tuple | None, type: int = FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def model(nodes, inputs, outputs, constants=None, opset=20):
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


node = helper.make_node


def outcomes(device: str, every: int, kinds: tuple[str, ...]) -> Counter:
    """How many of the package's cases end how; those that fail are printed."""
    counts: Counter = Counter()
    for case in list(conformance.cases(kinds))[::every]:
        outcome, reason = conformance.judged(case, device)
        counts[outcome] += 1
        if outcome == conformance.FAILED:
            print(case.name, reason)
    return counts


def test_the_packages_own_cases_pass_or_are_refused():
    counts = outcomes("numpy", 1, ("node", "simple", "pytorch-converted", "pytorch-operator"))
    assert not counts["failed"]
    assert counts["passed"] >= 1770


@pytest.mark.parametrize("device", DEVICES[1:])
def test_every_eighth_case_passes_on_vulkan(device):
    counts = outcomes(device, 8, ("node",))
    assert not counts["failed"]
    assert counts["passed"] >= 195


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_the_small_networks_pass(device):
    counts = outcomes(device, 1, ("light",))
    assert not counts["failed"]
    assert counts["passed"] >= 6  # three have more weights than one buffer of a software driver


# --- training -----------------------------------------------------------------------------------------------


def two_layers():
    weights = {"body.0.weight": RNG.normal(size=(8, 4)).astype("f"), "body.0.bias": np.zeros(8, "f"),
               "head": RNG.normal(size=(8, 3)).astype("f")}  # fmt: skip
    nodes = [
        node("Gemm", ["x", "body.0.weight", "body.0.bias"], ["a"], transB=1),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "head"], ["y"]),
    ]
    return model(nodes, [value("x", ("n", 4))], [value("y", ("n", 3))], weights)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_are_parameters_and_learn(device):
    net = load(two_layers(), device)
    assert set(net.state_dict()) == {"body.0.weight", "body.0.bias", "head"}
    x, y = (ta.tensor(RNG.normal(size=(16, n)).astype("f"), device=device) for n in (4, 3))
    optimizer = ta.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = ta.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert net(x).device == device


def test_gradients_are_those_of_the_same_layers():
    net = load(two_layers(), "numpy")
    w, b, h = (
        net.state_dict()[name].clone().requires_grad_() for name in ("body.0.weight", "body.0.bias", "head")
    )
    x = ta.tensor(RNG.normal(size=(5, 4)).astype("f"), device="numpy")
    net(x).square().sum().backward()
    (ta.functional.linear(x, w, b).relu() @ h).square().sum().backward()
    own = dict(net.named_parameters())
    for name, other in (("body.0.weight", w), ("body.0.bias", b), ("head", h)):
        np.testing.assert_allclose(own[name].grad.numpy(), other.grad.numpy(), rtol=1e-5)


def test_running_statistics_are_no_parameters():
    names = ["scale", "shift", "mean", "var"]
    net = load(
        model(
            [node("BatchNormalization", ["x", *names], ["y"])],
            [value("x", (2, 3, 4))],
            [value("y", (2, 3, 4))],
            {name: np.ones(3, "f") for name in names},
        ),
        "numpy",
    )
    assert [name for name, _ in net.named_parameters()] == ["scale", "shift"]
    assert [name for name, _ in net.named_buffers()] == ["mean", "var"]


# --- devices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES[1:])
def test_shape_arithmetic_stays_on_the_host(device):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["rows"]),
        node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["flat"]),
        node("Add", ["flat", "n_as_float"], ["y"]),
        node("Cast", ["n"], ["n_as_float"], to=FLOAT),
    ]
    nodes[5], nodes[6] = nodes[6], nodes[5]
    constants = {"zero": np.int64(0), "axes": np.int64([0]), "rest": np.int64([-1])}
    net = load(model(nodes, [value("x", ("n", 2, 3))], [value("y", ("n", 6))], constants), device)
    x = RNG.normal(size=(4, 2, 3)).astype("f")
    np.testing.assert_allclose(net.run({"x": x})["y"], x.reshape(4, 6) + 4, rtol=1e-6)
    reads = []
    backend = ta.device.resolve(device)
    download, backend.download = backend.download, lambda x: reads.append(x) or download(x)
    try:
        out = net(ta.tensor(x, device=device))
    finally:
        del backend.download
    assert not reads
    assert out.device == device


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_model_moves(device):
    net = load(two_layers(), "numpy")
    x = RNG.normal(size=(5, 4)).astype("f")
    before, weight = net.run({"x": x})["y"], net.head
    net.to(device)
    assert net.head is weight
    assert weight.device == device
    np.testing.assert_allclose(net.run({"x": x})["y"], before, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.to("numpy").run({"x": x})["y"], before, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_int64_is_narrowed_with_a_check_and_widened_again(device):
    net = load(
        model([node("Add", ["x", "x"], ["y"])], [value("x", (2,), INT64)], [value("y", (2,), INT64)]), device
    )
    y = net.run({"x": np.int64([1, -5])})["y"]
    assert y.dtype == np.int64
    assert y.tolist() == [2, -10]
    with pytest.raises(Refused, match=r"'x'.*2147483648"):
        net.run({"x": np.int64([1, 2**31])})


# --- graphs inside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_loops_see_what_is_around_them_and_gather(device):
    """x doubled until it exceeds the limit outside; every step is kept."""
    body = helper.make_graph(
        [
            node("Add", ["v", "v"], ["next"]),
            node("ReduceMax", ["next"], ["largest"], keepdims=0),
            node("Less", ["largest", "limit"], ["going"]),
            node("Identity", ["next"], ["row"]),
        ],
        "body",
        [value("i", (), INT64), value("c", (), BOOL), value("v", None)],
        [value("going", (), BOOL), value("next", None), value("row", None)],
    )
    loop = node("Loop", ["", "", "x"], ["last", "rows"], body=body)
    net = load(
        model([loop], [value("x", (2,)), value("limit", ())], [value("last", (2,)), value("rows", ("k", 2))]),
        device,
    )
    out = net.run({"x": np.float32([1, 3]), "limit": np.float32(20)})
    assert out["last"].tolist() == [8, 24]
    assert out["rows"].tolist() == [[2, 6], [4, 12], [8, 24]]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_flow_through_the_branch_taken(device):
    branches = {
        name: helper.make_graph(
            [node("Mul", ["x", factor], [f"{name}_y"])], name, [], [value(f"{name}_y", (2,))]
        )
        for name, factor in (("then_branch", "two"), ("else_branch", "three"))
    }
    net = load(
        model(
            [node("If", ["c"], ["y"], **branches)],
            [value("c", (), BOOL), value("x", (2,))],
            [value("y", (2,))],
            {"two": np.float32([2, 2]), "three": np.float32([3, 3])},
        ),
        device,
    )
    x = ta.tensor([1.0, 5.0], device=device, requires_grad=True)
    net(ta.tensor(False, device=device), x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert net.two.grad is None
    assert net.three.grad.tolist() == [1, 5]


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
@pytest.mark.parametrize("device", DEVICES)
def test_scattering_to_one_place_several_times(device, reduction):
    combine = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    x, index = RNG.normal(size=(3, 5)).astype("f"), RNG.integers(-3, 3, size=(7, 5))
    updates = RNG.normal(size=(7, 5)).astype("f")
    expected = x.copy()
    for i, j in np.ndindex(7, 5):
        expected[index[i, j], j] = combine(expected[index[i, j], j], updates[i, j])
    scatter = node("ScatterElements", ["x", "i", "u"], ["y"], reduction=reduction)
    net = load(
        model(
            [scatter],
            [value("x", (3, 5)), value("i", (7, 5), INT64), value("u", (7, 5))],
            [value("y", (3, 5))],
        ),
        device,
    )
    np.testing.assert_allclose(net.run({"x": x, "i": index, "u": updates})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Asin", "Acos"])
def test_composed_functions_are_accurate(name):
    x = {
        "Sinh": np.r_[np.linspace(-89, 89, 999), 1e-6],
        "Cosh": np.linspace(-89, 89, 999),
        "Asinh": np.r_[-np.logspace(-6, 38, 500), np.logspace(-6, 38, 500)],
        "Acosh": 1 + np.logspace(-6, 38, 500),
        "Atanh": np.r_[np.linspace(-0.999, 0.999, 999), 1e-6],
        "Asin": np.r_[np.linspace(-1, 1, 999), 1e-6],
        "Acos": np.linspace(-1, 1, 999),
    }[name].astype("f")
    net = load(model([node(name, ["x"], ["y"])], [value("x", x.shape)], [value("y", x.shape)]), "numpy")
    exact = getattr(np, {"A": "arc"}.get(name[0], "") + name.lower()[name[0] == "A" :])(x.astype(np.float64))
    np.testing.assert_allclose(net.run({"x": x})["y"], exact, rtol=1e-6, atol=3e-7 if name == "Acos" else 0)


def test_the_summary_says_what_would_not_run(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(two_layers().SerializeToString())
    done = run_python("-m", "tinyadept.onnx", path)
    assert done.returncode == 0
    assert "input  x: float (n, 4)" in done.stdout
    assert "Gemm 1" in done.stdout
    assert "64 parameters" in done.stdout


# --- what is done before a run ------------------------------------------------------------------------------


def convolution(outputs=("y",), bias=True, shared=False):
    """Conv, BatchNormalization, Relu, with a pad that is made of constants."""
    constants = {"w": RNG.normal(size=(5, 3, 3, 3)).astype("f"), "one": np.int64([1]), "zero": np.int64([0])}
    if bias:
        constants["b"] = RNG.normal(size=5).astype("f")
    constants |= {name: RNG.uniform(0.5, 2, 5).astype("f") for name in ("scale", "shift", "mean", "var")}
    nodes = [
        node("Concat", ["zero", "zero", "one", "one", "zero", "zero", "one", "one"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Conv", ["padded", "w", *(["b"] if bias else [])], ["c"]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    if shared:
        nodes.append(node("Conv", ["padded", "w"], ["z"]))
    shape = (2, 5, 6, 7)
    return model(nodes, [value("x", (2, 3, 6, 7))], [value(name, shape) for name in outputs], constants)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalisation_and_activation_go_into_the_convolution(device, bias):
    file = convolution(bias=bias)
    plain, joined = load(file, device, fold=False), load(file, device)
    assert [step[4].op for step in plain._body.steps] == [
        "Concat",
        "Pad",
        "Conv",
        "BatchNormalization",
        "Relu",
    ]
    assert [step[4].op for step in joined._body.steps] == ["Pad", "Conv"]
    assert {name for name, _ in joined.named_parameters()} == {"w", "b" if bias else "shift"}
    x = RNG.normal(size=(2, 3, 6, 7)).astype("f")
    np.testing.assert_allclose(joined.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-4, atol=1e-5)
    joined(ta.tensor(x, device=device)).sum().backward()
    assert all(parameter.grad is not None for parameter in joined.parameters())


@pytest.mark.parametrize(
    ("outputs", "shared"), [(("y", "c"), False), (("y", "n"), False), (("y", "z"), True)]
)
def test_what_others_read_is_not_joined(outputs, shared):
    file = convolution(outputs, shared=shared)
    plain, joined = load(file, "numpy", fold=False), load(file, "numpy")
    x = RNG.normal(size=(2, 3, 6, 7)).astype("f")
    expected, got = plain.run({"x": x}), joined.run({"x": x})
    for name in outputs:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4, atol=1e-5)
    assert ("BatchNormalization" in [step[4].op for step in joined._body.steps]) == (outputs[1] in "cz")


def test_constants_are_computed_once_and_weights_are_not():
    nodes = [
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Add", ["zeros", "half"], ["halves"]),
        node("Transpose", ["w"], ["t"]),
        node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5))),
        node("Mul", ["t", "halves"], ["scaled"]),
        node("Add", ["x", "scaled"], ["y"]),
    ]
    nodes.insert(0, nodes.pop(3))
    w = RNG.normal(size=(3, 2)).astype("f")
    net = load(
        model(nodes, [value("x", (2, 3))], [value("y", (2, 3))], {"shape": np.int64([2, 3]), "w": w}), "numpy"
    )
    assert [step[4].op for step in net._body.steps] == ["Transpose", "Mul", "Add"]
    assert [name for name, _ in net.named_parameters()] == ["w"]
    np.testing.assert_allclose(net.run({"x": np.zeros((2, 3), "f")})["y"], w.T / 2)


def test_constants_too_large_are_left_to_the_run():
    nodes = [node("ConstantOfShape", ["shape"], ["huge"]), node("Shape", ["huge"], ["y"])]
    net = load(model(nodes, [], [value("y", (2,), INT64)], {"shape": np.int64([1 << 20, 1 << 19])}), "numpy")
    assert [step[4].op for step in net._body.steps] == ["ConstantOfShape", "Shape"]


# --- element types that the engine lacks --------------------------------------------------------------------


@pytest.mark.parametrize("element", ["FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("device", DEVICES)
def test_small_floats_are_rounded_inside_a_graph(device, element):
    narrow = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(element))
    x = (RNG.normal(size=4000) * 10 ** RNG.uniform(-9, 2, 4000)).clip(-400, 400).astype("f")
    casts = [
        node("Cast", ["x"], ["small"], to=TensorProto.DataType.Value(element)),
        node("Cast", ["small"], ["y"], to=FLOAT),
    ]
    net = load(model(casts, [value("x", x.shape)], [value("y", x.shape)]), device)
    expected = x.astype(narrow).astype("f")
    assert np.array_equal(net.run({"x": x})["y"].view("i"), expected.view("i"))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("device", DEVICES)
def test_small_integers_wrap(device, op):
    a, b = RNG.integers(-128, 128, (2, 500)).astype(np.int8)
    kind = TensorProto.INT8
    net = load(
        model(
            [node(op, ["a", "b"], ["y"])],
            [value(n, a.shape, kind) for n in "ab"],
            [value("y", a.shape, kind)],
        ),
        device,
    )
    expected = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](a, b)
    assert np.array_equal(net.run({"a": a, "b": b})["y"], expected)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_model_is_captured(device):
    net = load(convolution(), device)
    step = ta.capture(lambda x: net(x))
    with ta.no_grad():
        for _ in range(5):
            x = RNG.normal(size=(2, 3, 6, 7)).astype("f")
            np.testing.assert_allclose(step(x).numpy(), net.run({"x": x})["y"], rtol=1e-6)


def test_channels_that_are_scaled_and_shifted_go_into_the_convolution():
    constants = {
        "w": RNG.normal(size=(4, 3, 1, 1)).astype("f"),
        "m": RNG.normal(size=(4, 1, 1)).astype("f"),
        "a": RNG.normal(size=(1, 4, 1, 1)).astype("f"),
    }
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "m"], ["d"]), node("Add", ["d", "a"], ["y"])]
    file = model(nodes, [value("x", (2, 3, 5, 4))], [value("y", (2, 4, 5, 4))], constants)
    plain, joined = load(file, "numpy", fold=False), load(file, "numpy")
    assert [step[4].op for step in joined._body.steps] == ["Conv"]
    x = RNG.normal(size=(2, 3, 5, 4)).astype("f")
    np.testing.assert_allclose(joined.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_operators_of_other_domains_are_registered():
    @operator("Halve", domain="tests.own")
    def halve(node, x):
        return x / (2 * node.get("times", 1))

    graph = helper.make_graph(
        [node("Halve", ["x"], ["y"], domain="tests.own", times=2)],
        "g",
        [value("x", (2,))],
        [value("y", (2,))],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("tests.own", 1)]
    net = load(helper.make_model(graph, opset_imports=opsets), "numpy")
    assert net.run({"x": np.float32([4, 8])})["y"].tolist() == [1, 2]


def test_functions_of_the_file_are_written_out():
    """clip(x, alpha) = Relu(x) * alpha, called twice with other attributes, one of them the default."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    scale = node("Constant", [], ["a"])
    scale.attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="alpha", type=1))
    function = helper.make_function(
        "own",
        "clip",
        ["v"],
        ["w"],
        [scale, node("Relu", ["v"], ["r"]), node("Mul", ["r", "a"], ["w"])],
        opsets,
        attribute_protos=[helper.make_attribute("alpha", 3.0)],
    )
    calls = [node("clip", ["x"], ["m"], domain="own"), node("clip", ["m"], ["y"], domain="own", alpha=5.0)]
    graph = helper.make_graph(calls, "g", [value("x", (2,))], [value("y", (2,))])
    net = load(helper.make_model(graph, opset_imports=opsets, functions=[function]), "numpy")
    assert net.run({"x": np.float32([-1, 2])})["y"].tolist() == [0, 30]


ACTIVE = {
    "Relu": [node("Relu", ["c"], ["y"])],
    "Sigmoid": [node("Sigmoid", ["c"], ["y"])],
    "Tanh": [node("Tanh", ["c"], ["y"])],
    "Gelu": [node("Gelu", ["c"], ["y"])],
    "Gelu by tanh": [node("Gelu", ["c"], ["y"], approximate="tanh")],
    "silu": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])],
    "silu, turned": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["s", "c"], ["y"])],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ACTIVE)
@pytest.mark.parametrize("first", ["Conv", "Gemm", "Gemm, scaled"])
def test_activations_go_into_products(device, name, first):
    shape = (2, 3, 5, 4) if first == "Conv" else (4, 3)
    weight = RNG.normal(size=(6, 3, 1, 1) if first == "Conv" else (3, 6)).astype("f")
    told = {"alpha": 0.5} if first.endswith("scaled") else {}
    nodes = [node(first.split(",")[0], ["x", "w"], ["c"], **told), *ACTIVE[name]]
    out = (2, 6, 5, 4) if first == "Conv" else (4, 6)
    file = model(nodes, [value("x", shape)], [value("y", out)], {"w": weight}, opset=20)
    plain, joined = load(file, device, fold=False), load(file, device)
    assert len(plain._body.steps) == len(nodes) and len(joined._body.steps) == 1
    x = {"x": RNG.normal(size=shape).astype("f")}
    np.testing.assert_allclose(joined.run(x)["y"], plain.run(x)["y"], rtol=1e-5, atol=1e-6)


def test_what_is_no_silu_stays():
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Sigmoid", ["c"], ["s"]),
        node("Mul", ["c", "s"], ["y"]),
        node("Add", ["c", "y"], ["z"]),
    ]
    weight = RNG.normal(size=(6, 3, 1, 1)).astype("f")
    outputs = [value("z", (2, 6, 5, 4))]
    net = load(model(nodes, [value("x", (2, 3, 5, 4))], outputs, {"w": weight}), "numpy")
    assert [step[4].op for step in net._body.steps] == ["Conv", "Sigmoid", "Mul", "Add"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [(), (7,), (1, 7), (4, 1), (4, 7)], ids=str)
@pytest.mark.parametrize("made", [False, True])
def test_large_weights_are_split(device, turned, bias, made, monkeypatch):
    w = np.full((7, 5) if turned else (5, 7), 0.5, "f") if made else RNG.normal(size=(5, 7)).astype("f")
    constants = {"b": RNG.normal(size=bias).astype("f")} if bias else {}
    nodes = [node("Gemm", ["x", "w", *constants], ["c"], transB=turned), node("Relu", ["c"], ["y"])]
    if made:
        constants["shape"] = np.array(w.shape, np.int64)
        half = numpy_helper.from_array(np.array([0.5], "f"))
        nodes.insert(0, node("ConstantOfShape", ["shape"], ["w"], value=half))
        monkeypatch.setattr(folding, "LARGEST", 1)
    else:
        constants["w"] = w.T.copy() if turned else w
    file = model(nodes, [value("x", (4, 5))], [value("y", (4, 7))], constants)
    monkeypatch.setattr(type(resolve(device)), "largest", 64)
    whole, parts = load(file, device, fold=False), load(file, device)
    assert [step[4].op for step in parts._body.steps].count("Gemm") == 3
    x = {"x": RNG.normal(size=(4, 5)).astype("f")}
    np.testing.assert_allclose(parts.run(x)["y"], whole.run(x)["y"], rtol=1e-5, atol=1e-6)

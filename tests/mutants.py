"""Kernels broken on purpose: tests that do not notice prove nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.shaders import Shaders


@contextmanager
def broken(gpu: Vulkan, folder: Path, template: str, right: str, wrong: str) -> Iterator[None]:
    """Inside, a device's kernels are compiled from copies of the templates, of which one says something else.

    Parameters
    ----------
    gpu : Vulkan
    folder : Path
        An empty one, for the copies.
    template : str
        Name of the file that is changed.
    right, wrong : str
        What it says there, and what it shall say.
    """
    shutil.copytree(gpu.shaders.folder, folder / "glsl")
    path = folder / "glsl" / template
    source = path.read_text(encoding="utf-8")
    assert right in source, f"{template} has changed: give this mutant another text to break"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "shaders", Shaders(folder / "glsl"))
        yield

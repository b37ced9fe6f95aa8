"""What a wheel ships: SPIR-V for every shader, so that its users need no compiler."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import absent

from tinyadept.backends.vulkan import drivers
from tinyadept.backends.vulkan.shaders import Shaders, spelled

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, for a folder of its own and four shaders; it returns the status."""
    spec = importlib.util.spec_from_file_location("shaders", ROOT / "scripts" / "shaders.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copytree(ROOT / "glsl", tmp_path / "glsl", ignore=shutil.ignore_patterns("spirv"))
    few = [("fill", {}), ("copy", {"WIDE": 0}), ("copy", {"WIDE": 1}), ("take", {"PLANES": 1})]
    monkeypatch.setattr(module, "variants", lambda: iter(few))
    return lambda: module.main(["--glsl", str(tmp_path / "glsl")])


def test_every_template_and_no_variant_twice():
    variants = [(name, spelled(macros)) for name, macros in drivers.variants()]
    assert {name for name, _ in variants} == {path.stem for path in (ROOT / "glsl").glob("*.comp")}
    assert len(variants) == len(set(variants))


def test_the_script_writes_what_is_missing_and_deletes_what_is_stale(script, tmp_path, capsys):
    folder = tmp_path / "glsl" / "spirv"
    assert script() == 0
    assert capsys.readouterr().out.startswith("4 shaders, 0.0 MB: 4 written, 0 deleted, ")
    (folder / "stale.spv").write_bytes(b"old")
    next(folder.glob("[0-9a-f]*.spv")).unlink()
    assert script() == 0
    assert ": 1 written, 1 deleted, " in capsys.readouterr().out
    shaders = Shaders(tmp_path / "glsl")
    assert shaders.get("copy", {"WIDE": 1}).spirv in [path.read_bytes() for path in folder.iterdir()]
    assert shaders.compiled == 0


def test_an_invalid_shader_is_not_shipped(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Shaders, "spirv", lambda shaders, name, macros: b"\3\2\43\7 no SPIR-V")
    assert script() == 1
    assert "is not valid" in capsys.readouterr().err
    assert not list((tmp_path / "glsl" / "spirv").iterdir())


WITHOUT_COMPILER = """
import os, runpy, sys
import tinyadept
from tinyadept.backends.vulkan import shaders
site, program = sys.argv[1:]
assert tinyadept.__file__.startswith(site), tinyadept.__file__
shaders.find_tool = lambda name: None  # without which nothing is compiled, nor taken from the cache
sys.argv, sys.path[0] = [program, "2", "both"], os.path.dirname(program)
runpy.run_path(program, run_name="__main__")
"""


@absent
@pytest.mark.slow
def test_a_wheel_runs_every_op_without_a_compiler(tmp_path):
    """On the bodies for CPUs and on those for GPUs."""
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "runs", "spirv", "tests")
    shutil.copytree(ROOT, checkout, ignore=unwanted)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    script = [sys.executable, str(checkout / "scripts" / "shaders.py")]
    subprocess.run(script, check=True, env=environment, cwd=checkout)
    pip = [sys.executable, *"-m pip wheel -q --no-deps --no-build-isolation .".split(), "-w", str(tmp_path)]
    subprocess.run(pip, check=True, cwd=checkout)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 10e6
    zipfile.ZipFile(wheel).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", WITHOUT_COMPILER, str(site), str(ROOT / "tests" / "rows.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = {path.stem for path in (ROOT / "glsl").glob("*.comp")} & set(done.stdout.split())
    assert len(ran) > 15, done.stdout

"""docs/adding-an-op.md: its row and its shader are added to a copy, and its commands are run there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import absent

from tinyadept.ops import registry

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "adding-an-op.md").read_text(encoding="utf-8")
ROW, OUTSIDE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(SHADER,) = re.findall(r"```glsl\n(.*?)```", TEXT, re.DOTALL)
CONSOLE = re.findall(r"```console\n\$ python (.*?)\n(.*?)```", TEXT, re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")


@pytest.fixture
def copy(tmp_path):
    """A checkout with the row; it runs a command there, with a line of GLSL."""
    unwanted = shutil.ignore_patterns("__pycache__", "spirv")
    for name in ("tinyadept", "backends", "glsl", "models", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=unwanted)
    shutil.copy(ROOT / "README.md", tmp_path)
    with open(tmp_path / "tinyadept" / "ops" / "elementwise.py", "a", encoding="utf-8") as file:
        file.write(f"\n\n{ROW}")
    glsl = (tmp_path / "glsl" / "elementwise.glsl").read_text(encoding="utf-8")

    def run(command, shader=SHADER):
        (tmp_path / "glsl" / "elementwise.glsl").write_text(glsl + shader, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, *command.split()], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def shape(text):
    """Lines without their numbers, and without the input, which hypothesis may choose otherwise."""
    return [NUMBER.sub("N", line) for line in text.splitlines() if not line.startswith("a = ")]


def numbers(text):
    return [float(found[0]) for found in NUMBER.finditer(text)]


@absent
def test_the_document_is_true(copy, tmp_path):
    right, wrong, again, table = CONSOLE
    done = copy(right[0])
    assert (done.returncode, shape(done.stdout)) == (0, shape(right[1])), done.stderr
    mistake = SHADER.replace("abs(a)", "a")
    done = copy(wrong[0], mistake)
    assert done.returncode == 1
    assert shape(done.stdout) == shape(wrong[1])
    program = re.search(r"\n\n(# .*?)\n\n1 op", wrong[1], re.DOTALL)
    (tmp_path / again[0]).write_text(program[1], encoding="utf-8")
    done = copy(again[0], mistake)
    told = done.stdout + done.stderr.splitlines()[-1]
    assert shape(told) == shape(again[1])
    np.testing.assert_allclose(numbers(told), numbers(again[1]), rtol=1e-3)
    assert copy(again[0]).returncode == 0  # mended
    assert copy(table[0]).returncode == 0
    assert "`softsign`" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_op_from_outside_is_fuzzed():
    try:
        exec(OUTSIDE, {})
    finally:
        del registry["bent"]

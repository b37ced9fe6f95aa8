"""Ops from outside the package: a function for the elementwise template, and shaders of their own."""

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, VULKAN, absent

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.shaders import ShaderError
from tinyadept.ops import define, registry
from tinyadept.ops.elementwise import elementwise, wide
from tinyadept.ops.kernels import Kernel

OUTER = """
void main() {
    uint row = gl_WorkGroupID.x, column = gl_GlobalInvocationID.y, width = number(0);
    if (column < width) result(row * width + column, input0(row) * input1(column));
}
"""


@pytest.fixture
def defined():
    """Defines ops that are gone after the test."""
    before = set(registry)
    yield define
    for name in set(registry) - before:
        del registry[name]


def outer(define, **changes):
    facts = {
        "shape": lambda a, b: (a[0], b[0]),
        "grid": lambda a, b: (a[0], -(-b[0] // 32)),
        "local": (1, 32, 1),
        "numbers": lambda a, b: (b[0],),
        "draw": lambda integer: [(integer(1, 5),), (integer(1, 70),)],
    }
    glsl = changes.pop("glsl", OUTER)
    return define(
        Kernel(**(facts | changes)),
        "own_outer",
        np.outer,
        lambda g, out, a, b: g @ b,
        lambda g, out, a, b: g.mT @ a,
        takes="strict float",
        glsl=glsl,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_shader_of_its_own_is_fuzzed(defined, device, monkeypatch):
    monkeypatch.setitem(oracle.TERMS, "own_outer", lambda case: 1)
    assert ta.fuzz(outer(defined), device=device, examples=30)


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_of_its_own_is_fuzzed(defined, device, tmp_path):
    path = tmp_path / "bent.glsl"
    path.write_text("float op_own_bent(float a, float by) { return fma(by * a, a, a); }")
    bent = defined(
        elementwise,
        "own_bent",
        wide(lambda a, by: a + by * a * a),
        lambda g, out, a, by: g * (1 + 2 * by * a),
        domain=(0.0, 3.0),
        takes="strict float",
        glsl=path,
    )
    assert ta.fuzz(bent, device=device, examples=30)
    x = ta.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    bent(x.mT, by=0.5).sum().backward()
    assert x.grad.numpy().tolist() == [[2, 3], [4, 5]]


@absent
@pytest.mark.parametrize(
    "glsl", ["void main() { result(0, 1.0); }", OUTER.replace("input1(column)", "input1(0)")]
)
def test_a_wrong_kernel_is_caught(defined, glsl):
    with pytest.raises(AssertionError, match="own_outer on vulkan, forward"):
        ta.fuzz(outer(defined, glsl=glsl), device=VULKAN, examples=20)


@absent
def test_views_reach_a_shader_dense(defined):
    op, x = outer(defined), ta.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=VULKAN)
    got = op(x[::-1, 1], x[2].flip(0)).numpy()
    assert got.tolist() == np.outer([9, 5, 1], [11, 10, 9, 8]).tolist()
    assert op(x[:0, 0], x[0]).shape == (0, 4)


@absent
def test_what_does_not_compile_names_the_line_of_the_source(defined):
    op = outer(defined, glsl="void main() {\n    nonsense;\n}")
    with pytest.raises(ShaderError, match=r":2: 'nonsense'"):
        op(ta.ones(2, device=VULKAN), ta.ones(3, device=VULKAN))


@absent
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"local": (1024, 1024, 1)}, "invocations of a workgroup, expected at most"),
        ({"grid": lambda a, b: (1 << 16,)}, "65536 workgroups along an axis, expected at most 65535"),
        ({"numbers": lambda a, b: range(25)}, "25 numbers, expected at most 24"),
    ],
)
def test_limits_are_checked_before_anything_runs(defined, changes, message):
    op = outer(defined, **changes)
    with pytest.raises(ValueError, match=message):
        op(ta.ones(2, device=VULKAN), ta.ones(3, device=VULKAN))


@absent
def test_without_a_shader_vulkan_says_what_is_missing(defined):
    op = outer(defined, glsl=None)
    assert op(ta.ones(2), ta.ones(3)).shape == (2, 3)
    with pytest.raises(ta.Unsupported, match="glsl="):
        op(ta.ones(2, device=VULKAN), ta.ones(3, device=VULKAN))


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_page_shows(device, defined):
    text = (Path(__file__).parent.parent / "docs" / "own-kernels.md").read_text(encoding="utf-8")
    names = {"define": defined, "np": np, "elementwise": elementwise, "wide": wide}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert ta.fuzz(names["outer"], device=device, examples=10)
    assert names["bent"](ta.tensor([1.0, 2.0], device=device), by=0.5).numpy().tolist() == [1.5, 4.0]

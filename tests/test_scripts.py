"""The scripts that people read and run first."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def lesson(capsys) -> Callable[..., tuple[int, str, str]]:
    """The lesson in this process: exit status, output and errors."""
    spec = importlib.util.spec_from_file_location("lesson", SCRIPTS / "lesson.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def take(expression: str, *variables: str) -> tuple[int, str, str]:
        lets = [part for variable in variables for part in ("--let", variable)]
        return module.main(["--expression", expression, *lets]), *capsys.readouterr()

    return take


def gradient(output: str, name: str) -> str:
    found = re.search(rf"dy/d{name} = (.*)\n +≈ (.*) by finite differences$", output, re.MULTILINE)
    assert found is not None
    return found[1]


def test_lesson_shows_each_step_and_rule():
    result = run("lesson.py")
    assert result.returncode == 0, result.stderr
    for shown in (
        "#3    tanh(#2)",
        "#10  out = add(a, b)",
        "to #2: g * (1 - out * out) = [0.4732, 0.2423, -0.02836]",
    ):
        assert shown in result.stdout
    assert "DIFFER" not in result.stdout
    assert gradient(result.stdout, "w") == "-0.3088 = 0.05 + 0.05 + -0.4088"
    assert gradient(result.stdout, "c") == "0.6871"


def test_lesson_takes_an_expression(lesson):
    status, told, _ = lesson("sum((a * b + c).tanh())", "a=0.5,1", "b=0", "c=0,0; 0,0")
    assert status == 0 and "DIFFER" not in told
    assert gradient(told, "a") == "[0, 0]"
    assert gradient(told, "b") == "3"
    assert gradient(told, "c") == "[[1, 1], [1, 1]]"
    assert "b was broadcast from shape (): what its copies get adds up to 3" in told


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a ** 2", "[2, 4, 6]"),
        ("-a[1:] @ a[:2]", "[-2, -4, -2] = [-2, -3, 0] + [0, -1, -2]"),
        ("F.cat((a, a * a)).sum()", "[3, 5, 7] = [1, 1, 1] + [1, 2, 3] + [1, 2, 3]"),
        ("a.max(dim=0).values / 2", "[0, 0, 0.5]"),
        ("F.where(a > 1.5, a, 0).sum()", "[0, 1, 1]"),
        ("a.reshape(3, 1).mT.mean()", "[0.3333, 0.3333, 0.3333]"),
    ],
)
def test_lesson_knows(lesson, expression, expected):
    _, told, _ = lesson(expression, "a=1,2,3")
    assert gradient(told, "a") == expected
    assert "DIFFER" not in told


def test_lesson_finds_a_kink(lesson):
    assert "DIFFER" in lesson("F.where(a > 1, a, 0)", "a=1")[1]


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('echo broken in')",
        "open('/etc/passwd')",
        "a.__class__.__mro__",
        "a.numpy()",
        "a.backend.run",
        "a.register_hook(print)",
        "a.backward()",
        "a.add_(1)",
        "F.annotations",
        "F.__loader__",
        "F.elementwise.dtypes",
        "(lambda: a)()",
        "[x for x in a]",
        "(a := 3)",
        "f'{a}'",
        "a if a else a",
        "F.relu(*a)",
        "F.relu(**a)",
        "a * 9**9**9**9",
        "a * 'x'",
        "b + 1",
        "a +",
        "",
        "1 + 1",
        "a > 1",
        "a.sum(dim=7)",
        "a @ a.reshape(1, 3)",
        "(" * 500 + "a" + ")" * 500,
    ],
)
def test_lesson_refuses(lesson, expression):
    status, told, complaint = lesson(expression, "a=1,2,3")
    assert (status, told) == (2, "")
    assert complaint.startswith("lesson: ") and complaint.count("\n") == 1


@pytest.mark.parametrize("variable", ["a", "a=", "a=x", "1a=1", "a=1,2;3", "F=1", "a.b=1"])
def test_lesson_refuses_variables(lesson, variable):
    status, told, complaint = lesson("a", variable)
    assert (status, told) == (2, "")
    assert complaint.startswith("lesson: --let ")


def test_bench_prints_a_row():
    result = run("bench.py", "--only", "matmul", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^matmul 1024 x 1024 .* ms  NumPy .* ms .*x +1x  (met|MISSED)$", result.stdout, re.MULTILINE
    )
    assert re.search(r"cores; .*Python 3", result.stdout)


def test_bench_prints_a_row_on_vulkan():
    result = run("bench.py", "--device", "vulkan", "--only", "matmul 4 x 128", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^matmul 4 x 128 .* TFLOP/s  PyTorch .* TFLOP/s .*x$", result.stdout, re.MULTILINE)
    assert re.search(r"^tinyadept .*, on .* \(.*, Vulkan .*\), by kp ", result.stdout, re.MULTILINE)


def test_bench_refuses_an_unknown_row():
    result = run("bench.py", "--only", "fortran")
    assert result.returncode == 2
    assert "no row" in result.stderr

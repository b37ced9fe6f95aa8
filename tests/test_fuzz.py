"""Fuzzing as a product: what it finds is a program that anyone can run, and that shows the failure again."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyadept as ta
from tinyadept import device, oracle
from tinyadept.ops import Family, define, elementwise, reduce, registry
from tinyadept.oracle import program
from tinyadept.oracle.fuzzing import search
from tinyadept.view import View

SCRIPTS = Path(__file__).parents[1] / "scripts"
# Two broken devices, and two wrong rules; printed programs are run with the same.
SABOTAGE = """
import numpy as np
from tinyadept import device
from tinyadept.backends.reference import Reference
from tinyadept.ops import elementwise, registry


class Broken(Reference):
    name = "broken"

    def run(self, op, inputs, shape, dtype, params, into=None):
        if op.name == "neg":
            raise ZeroDivisionError("this kernel divides by zero")
        buffer = super().run(op, inputs, shape, dtype, params, into)
        if op.name in ("tanh", "put_along_add"):
            buffer.data.reshape(-1)[2:] += np.asarray(1, dtype)
        return buffer


class Misreads(Reference):
    name = "misreads"

    def download(self, x):
        values = super().download(x)
        return values if x.layout.strides[-1:] in ((), (0,), (1,)) else values[..., ::-1]


device.backends.update(broken=Broken(), misreads=Misreads())


def rule(name, *vjps):
    object.__setattr__(registry[name], "vjps", vjps)
    registry[name].plans.clear()


rule("log", lambda g, out, a: g / a * 1.001)
rule("sin", lambda g, out, a: g * elementwise.cos(a).detach())
"""


@pytest.fixture
def sabotage():
    rules = {name: registry[name].vjps for name in ("log", "sin")}
    exec(SABOTAGE, {})
    yield
    for name, vjps in rules.items():
        object.__setattr__(registry[name], "vjps", vjps)
        registry[name].plans.clear()
    del device.backends["broken"], device.backends["misreads"]


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPTS / "fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(text):
    """Run a program in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "where", "check", "said"),
    [
        ("tanh", "broken", "forward", r"element \(.*2,?\) is .*, expected .* ulps\); 1 of 3 is wrong"),
        ("put_along_add", "broken", "forward", r"element \(.*\) is .*, expected "),
        ("neg", "broken", "forward", "raised ZeroDivisionError: this kernel divides by zero"),
        ("relu", "misreads", "forward", r"element \(.*\) is .*, expected "),
        ("tanh", "broken", "backward", r"element \(.*\) is .*, expected "),
        ("log", "numpy", "gradient", r"element \(.*\) is .*, expected "),
        ("sin", "numpy", "second gradient", "second order: the gradient along a random direction is "),
    ],
)
def test_a_failure_is_a_program_that_fails_again(sabotage, name, where, check, said):
    _, found = search(registry[name], check, where, examples=60, seed=3)
    headline = found.program.splitlines()[0]
    assert re.fullmatch(f"# {name} on {where}, {check}: {said}.*", headline)
    result = run(SABOTAGE + found.program)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].split(": ", 1)[1] in headline or check == "second gradient"
    assert "AssertionError" in result.stderr or "ZeroDivisionError" in result.stderr
    if where != "numpy":  # on another device nothing is wrong
        exec(found.program.replace(f'"{where}"', '"numpy"'), {})


def test_what_is_shrunk_is_small_and_plain(sabotage):
    found = search(registry["tanh"], "forward", "broken", examples=30, seed=3)[1].program
    assert "np.array([0.0, 0.0, 0.0], np.float32)" in found  # the third is the first that is wrong
    misread = search(registry["relu"], "forward", "misreads", examples=60, seed=3)[1].program
    assert re.search(r"np.array\(\[[01., ]*\], np.float32\)", misread)
    assert re.search(r"strides=\((|.*, )(-1|-?[2-9]),?\)", misread)  # the view that shows it is kept


def test_all_failures_are_reported_and_a_seed_repeats_them(sabotage, script, capsys):
    command = "--op tanh neg exp put_along_a* --device broken --examples 25 --seed 5".split()
    told = []
    for _ in range(2):
        assert script.main(command) == 1
        told.append(re.sub(r"\d+\.\d s$", "", capsys.readouterr().out))
    assert told[0] == told[1]
    for line in (
        "tanh on broken, forward",
        "tanh on broken, backward",
        "neg on broken, forward: raised Zero",
    ):
        assert f"# {line}" in told[0]
    assert re.search(r"^exp  .*: ok$", told[0], re.MULTILINE)
    assert re.search(r"^4 ops, \d+ examples, \d failures on broken, seed 5, $", told[0], re.MULTILINE)


def test_the_script_finds_nothing_wrong_with_sound_ops():
    command = [sys.executable, SCRIPTS / "fuzz.py", *"--op exp any --examples 5 --jobs 2".split()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^any +forward 5: ok$", result.stdout, re.MULTILINE)
    assert re.search(
        r"^2 ops, 25 examples, 0 failures on \w+, seed \d+, \d+\.\d s$", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--op", "exp", "sine"], "no op is called 'sine'"),
        (["--op", "transfer"], "calls of transfer are not drawn"),
        (["--device", "abacus"], "there is no device 'abacus'"),
    ],
)
def test_the_script_refuses(script, capsys, arguments, complaint):
    assert script.main(arguments) == 2
    assert complaint in capsys.readouterr().err


# --- ops from outside of the package -------------------------------------------------------------

DEFINITION = """
import numpy as np
from tinyadept.ops import define, elementwise

my_op = define(
    elementwise.elementwise, "my_op", lambda a, b, sharpness: a * np.tanh(sharpness * b),
    lambda g, out, a, b, sharpness: g * (sharpness * b).tanh(),
    lambda g, out, a, b, sharpness: g * a * sharpness * (1 - (sharpness * b).tanh()),
    takes="float", ulps=8.0,
)
"""  # the second rule lacks a square


@pytest.fixture
def cleared():
    before = dict(registry)
    yield
    for name in [name for name in registry if name not in before]:
        del registry[name]


def test_an_op_of_a_user_is_fuzzed(cleared):
    twice = define(elementwise.elementwise, "twice", lambda a: 2 * a, lambda g, out, a: g * 2, takes="number")
    spread = define(
        reduce.reduction,
        "spread",
        lambda a, axes: a.max(axes, keepdims=True, initial=0) - a.min(axes, keepdims=True, initial=0),
        None,
    )
    scaled = define(
        elementwise.elementwise,
        "scaled",
        lambda a, by: a * np.asarray(by, a.dtype),
        lambda g, out, a, by: g * by,
        takes="strict float",
    )
    assert ta.fuzz(twice, "numpy", examples=30)
    assert ta.fuzz("twice", "numpy", examples=30)
    assert ta.fuzz(scaled.op, "numpy", examples=30)
    with pytest.raises(AssertionError, match="spread on numpy, forward: raised TypeError"):
        ta.fuzz(spread, "numpy", examples=60)  # NumPy does not subtract booleans


def test_a_wrong_rule_of_a_user_is_found_and_printed(cleared):
    scope = {}
    exec(DEFINITION, scope)
    with pytest.raises(AssertionError, match="my_op fails 2 of its checks") as failure:
        ta.fuzz(scope["my_op"], "numpy", examples=50)
    _, shown, _ = str(failure.value).split("\n\n# my_op ")
    assert re.match(r"on numpy, gradient: element .* expected ", shown)
    assert "# and the module that defines my_op" in shown
    result = run(DEFINITION + f"# {shown}")
    assert result.returncode == 1 and "AssertionError: element" in result.stderr


def test_what_cannot_be_fuzzed_says_why(cleared):
    with pytest.raises(ValueError, match="there is no op 'sine'"):
        ta.fuzz("sine")
    odd = define(Family("odd", lambda op, inputs, params: None), "odd_op", np.exp, None)
    with pytest.raises(ValueError, match="nobody says how calls of the family 'odd' are drawn"):
        ta.fuzz(odd)


def test_hypothesis_is_asked_for_only_where_it_is_needed():
    result = run(
        "import sys; sys.modules['hypothesis'] = None\n"
        "import tinyadept as ta; from tinyadept import oracle\n"
        "with oracle.first_difference('numpy') as comparison: ta.ones(2) + 1\n"
        "assert comparison.compared\n"
        "ta.fuzz('exp')"
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: fuzzing needs the package hypothesis: pip install 'tinyadept[fuzz]'"
    )


# --- source text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "memory",
    [
        np.array([0.1, -0.0, 1e-30, 3.4028235e38, 16777217, 1 / 3], np.float32),
        np.array([np.nan, np.inf, -np.inf, 1.5], np.float32),
        np.array([0x7FC0DEAD, 0xFFC00001, 0x3F800000], np.uint32).view(np.float32),
        np.array([0.1, -0.0, np.nan]),
        np.array([True, False]),
        np.array([-(2**31), 7], np.int32),
        np.array([], np.uint8),
    ],
)
def test_every_bit_of_an_input_is_written(memory):
    again = eval(program.array(memory), {"np": np})
    assert again.dtype == memory.dtype
    assert again.tobytes() == memory.tobytes()


def test_parameters_are_written_as_python():
    spot = ta.ops.Move(registry["index"], (("key", (slice(None, 3, -1), None, 2)),))
    params = {"move": spot, "fill": float("-inf"), "dtype": ta.float32, "axes": (0,), "mode": "padded"}
    again = eval(program.written(params), {"np": np, "ops": ta.ops})
    assert again == params and again["move"].view((4, 5)) == spot.view((4, 5))


def test_ulps_of_an_element():
    one = np.float32(1)
    assert oracle.ulps(np.nextafter(one, np.float32(2)), np.float64(1)) == 1
    assert oracle.ulps(np.float32(np.inf), np.float64(1)) == np.inf
    assert oracle.ulps(np.int32(5), np.int32(3)) == 2
    assert oracle.first_wrong(np.float32([1, 2]), np.array([1, 3.0]), np.array([False, True])) == (
        "element (1,) is 2.0, expected 3.0 (4.194e+06 ulps); 1 of 2 is wrong"
    )


def test_a_case_names_its_views():
    case = oracle.Case(registry["tanh"], (oracle.Given(np.zeros(4, np.float32), View((2,), (-2,), 3)),), {})
    assert "View(shape=(2,), strides=(-2,), offset=3)" in str(oracle.Wrong(case, "wrong"))

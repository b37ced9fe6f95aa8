"""Watching a program: the first op that a device gets wrong is named, with the line that called it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import VULKAN, absent

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import device, nn, optim
from tinyadept.backends.reference import Reference
from tinyadept.oracle import first_difference
from tinyadept.oracle.comparison import Differs

SCRIPT = Path(__file__).parents[1] / "scripts" / "first_difference.py"


class Broken(Reference):
    """The reference, but for what `spoil(op, buffer, inputs, into)` does to its results."""

    name = "broken"

    def __init__(self, spoil=lambda op, out, inputs, into: None):
        self.spoil = spoil

    def run(self, op, inputs, shape, dtype, params, into=None):
        buffer = super().run(op, inputs, shape, dtype, params, into)
        self.spoil(op.name, into.buffer.data if buffer is None else buffer.data, inputs, into)
        return buffer


def train(where, steps=2):
    """A small network, as a program would train it."""
    ta.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(where)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    x = ta.tensor(np.random.default_rng(2).random((5, 4)), device=where)
    labels = ta.tensor([0, 1, 2, 1, 0], device=where)

    def follow(x, labels):
        loss = F.cross_entropy(model(x), labels)  # the forward pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = ta.capture(follow, where)
    return [step(x, labels).item() for _ in range(steps)]


def spoiled(name, by=1e-3):
    def spoil(op, out, inputs, into):
        if op == name:
            out.reshape(-1)[-1] += by

    return spoil


def first(spoil):
    with pytest.raises(Differs) as found, first_difference(Broken(spoil)) as comparison:
        train(comparison.backend)
    assert comparison.found is found.value
    return comparison, str(found.value)


def test_a_sound_device_agrees():
    backend = Broken()
    with first_difference(backend) as comparison:
        losses = train(backend)
    assert comparison.compared > 40 and comparison.found is None
    assert losses == train("numpy")  # watching changes nothing
    assert "run" not in vars(backend)


def test_the_first_wrong_op_is_named_with_its_line():
    comparison, told = first(spoiled("tanh"))
    assert re.match(r"tanh: element \(4, 7\) is .*, expected .* ulps\); 1 of 40 is wrong\n", told)
    assert "input 0: float32 of View(shape=(5, 8), strides=(8, 1), offset=0)" in told
    assert re.search(r"called at .*test_first_difference.py:\d+: loss = F.cross_entropy\(model\(x\)", told)
    assert f"op {comparison.compared + 1} on broken" in told


def test_in_a_gradient_rule_the_recording_line_is_named():
    broken = Broken(spoiled("mul"))
    x = ta.tensor([0.5, 1.0], device=broken, requires_grad=True)
    with pytest.raises(Differs, match=r"^mul: ") as found, first_difference(broken):
        y = x.tanh()
        y.sum().backward()
    where = r"in the gradient rule of tanh, which was recorded at .*test_first_difference.py:\d+: y = x.tanh"
    assert re.search(where, str(found.value))


def test_writes_are_compared():
    def beside(op, out, inputs, into):
        if into is not None:
            out.reshape(-1)[2] = 7

    def operand(op, out, inputs, into):
        if op == "exp":
            inputs[0].buffer.data.reshape(-1)[0] += 1

    x = ta.zeros(2, 6, device=Broken(beside))
    told = r"beside the result, element \(0,\) is 7.0, expected 0.0"
    with pytest.raises(Differs, match=told), first_difference(x.backend):
        x[:, 1::2] += 1  # between the first and the last cell that this writes lie others
    x = ta.ones(3, device=Broken(operand))
    told = r"input 0 afterwards: element \(0,\) is 2.0, expected 1.0"
    with pytest.raises(Differs, match=told), first_difference(x.backend):
        x.exp()


def test_a_step_of_an_optimiser_is_compared():
    def spoil(op, out, inputs, into):
        if op == "adam":
            inputs[-1].buffer.data.reshape(-1)[-1] *= 1.01

    _, told = first(spoil)
    assert re.match(r"adam: input \d+ afterwards: element ", told)
    assert "optimizer.step()" in told


def test_small_inputs_are_printed_as_a_program(monkeypatch):
    monkeypatch.setitem(device.backends, "broken", Broken(spoiled("tanh")))
    with pytest.raises(Differs) as found, first_difference("broken"):
        ta.tensor([0.5, 1.0], device="broken").tanh()
    program = str(found.value).split("\n\n", 1)[1]
    assert "np.array([0.5, 1.0], np.float32)" in program
    with pytest.raises(AssertionError, match=r"element \(1,\)"):
        exec(program, {})


PROGRAM = """
import sys
import tinyadept as ta

x = ta.tensor([[1.0, -2.0, 3.0]], requires_grad=True)
y = (x * x).sigmoid()
y.sum().backward()
print("learned", *sys.argv[1:])
"""
BROKEN = """
from tinyadept import device
from tinyadept.backends.reference import Reference


class Broken(Reference):
    name = "broken"

    def run(self, op, inputs, shape, dtype, params, into=None):
        buffer = super().run(op, inputs, shape, dtype, params, into)
        if op.name == "sigmoid":
            buffer.data[0, 1] = 0.5
        return buffer


device.backends["broken"] = Broken()
"""


def run(program, *arguments):
    """The script in a process that knows the broken device."""
    start = f"{BROKEN}\nimport runpy, sys\nsys.argv = {[str(SCRIPT), *arguments, str(program), 'a', '--b']}\n"
    command = [sys.executable, "-c", f"{start}runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_watches_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    sound = run(program, "--on", "numpy")
    assert sound.returncode == 0 and sound.stdout == "learned a --b\n"
    assert re.search(r"no difference: \d+ ops on numpy agree with the reference", sound.stderr)
    wrong = run(program, "--on", "broken")
    assert wrong.returncode == 1 and wrong.stdout == ""
    assert re.match(r"first difference: sigmoid: element \(0, 1\) is 0.5, expected 0.98", wrong.stderr)
    assert f"called at {program}:6: y = (x * x).sigmoid()" in wrong.stderr


def test_the_script_says_when_nothing_was_compared(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit(sys.argv[2:] != ['--b'])")
    result = run(program, "--on", "broken")
    assert result.returncode == 2 and "no op ran on broken" in result.stderr


@absent
def test_a_broken_kernel_is_found_on_vulkan():
    gpu = device.resolve(VULKAN)
    with first_difference(gpu) as comparison:
        losses = train(gpu)
    assert comparison.compared > 40
    np.testing.assert_allclose(losses, train("numpy"), rtol=1e-5)
    tanh = gpu.families["elementwise"]

    def wrong(gpu, op, inputs, shape, dtype, params, into=None):
        name = "sigmoid" if op.name == "tanh" else op.name
        return tanh(gpu, ta.ops.registry[name], inputs, shape, dtype, params, into)

    gpu.families["elementwise"] = wrong
    try:
        with pytest.raises(Differs, match=r"^tanh: element \(0, 0\) is .*, expected "), first_difference(gpu):
            train(gpu)
    finally:
        gpu.families["elementwise"] = tanh

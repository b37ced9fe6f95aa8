"""The workshop runs, and what it plugs in gives the model's own logits."""

from pathlib import Path

import pytest
from conftest import DEVICES, run_python

WORKSHOP = Path(__file__).parent.parent / "scripts" / "workshop.py"


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_the_workshop(device):
    done = run_python(
        WORKSHOP, "--device", device, "--examples", 8, "--tokens", 17, "--calls", 1, timeout=300
    )
    assert done.returncode == 0, done.stderr
    steps = [
        line
        for line in done.stdout.splitlines()
        if "engine's" in line or line[:2] in ("1.", "2.", "3.", "4.")
    ]
    traffic = [float(line.split()[-1]) for line in steps]
    assert len(steps) == 5 and traffic[2] > 8 * traffic[3] > 8 * traffic[4]
    assert done.stdout.count("is what its definition says") == 4

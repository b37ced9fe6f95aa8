"""The oracle on SwiftShader: a second software driver, with other limits and another compiler."""

import os
import re
from pathlib import Path

import pytest
from conftest import missing, run_python

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyadept"
DRIVER = CACHE / "swiftshader" / "vk_swiftshader_icd.json"
EXAMPLES = os.environ.get("SWIFTSHADER_EXAMPLES", "3")
ORACLE = [
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    Path(__file__).with_name("test_oracle.py"),
    "-k",
    "vulkan",
]


@pytest.fixture
def environment():
    """Variables of a process that sees SwiftShader and no other device."""
    if not DRIVER.exists():
        missing(f"no SwiftShader at {DRIVER}: ./scripts/vulkan.sh .venv tests fetches it")
    chosen = {
        "VK_DRIVER_FILES": str(DRIVER),
        "VK_ICD_FILENAMES": str(DRIVER),
        "TINYADEPT_TEST_DEVICE": "vulkan",
    }
    return {**chosen, "EXAMPLES": EXAMPLES, "CI": "1"}


def test_it_starts_with_limits_of_its_own(environment):
    done = run_python("-m", "tinyadept.backends", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "vulkan:0: SwiftShader",
        r"workgroup_invocations +256\n",
        r"subgroup +4: ",
        r"self-test +passed",
    ):
        assert re.search(part, done.stdout), done.stdout


@pytest.mark.slow
def test_every_row_is_its_definition_there_too(environment):
    done = run_python(*ORACLE, timeout=3000, **environment)
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 200 and "skipped" not in done.stdout

"""Khronos' validation layer looks at every kernel, and has nothing to say."""

import os
import re
from pathlib import Path

import pytest
from conftest import VULKAN, absent, missing, run_python

pytestmark = [absent, pytest.mark.slow]
ROWS = Path(__file__).with_name("rows.py")
LAYER = "VK_LAYER_KHRONOS_validation"
SETTINGS = """
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = stdout
"""
# Sees what shaders touch behind the end of a buffer, of which every tensor has its own then.
GPU_ASSISTED = "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT\n"
COMPLAINT = re.compile(r".*(?:VUID|UNASSIGNED|Validation (?:Error|Warning|Performance)).*")
# With checks around each access a kernel takes a second or more to compile. In CI some rows stand for those
# that run the same template; EVERY_ROW=1 runs them all, in five minutes.
CHOSEN = (
    "add where clamp cast floor_divide matmul sum amax argmax var cumsum softmax normalize argsort cat place "
    "arange full take put_add put nonzero in_range uniform conv pool_index pool_put"
).split()
OUT_OF_BOUNDS = """
from mapped import mapped
from tinyadept.backends.vulkan.queue import pack

gpu = mapped()
to, source = (gpu.allocator.allocate(5) for _ in range(2))
bound = (to, source, gpu.queue.reports)
selftest = gpu.shaders.get("selftest", None, (gpu.local,))
gpu.queue.dispatch(selftest, (1, 1, 1), pack(8, to.offset, source.offset, 0, 0), bound)  # 8 of 5
gpu.queue.flush()
"""
NO_FEATURE = """
import sys
from pathlib import Path
from mapped import mapped
from tinyadept.backends.vulkan.shaders import Shaders

Path(sys.argv[1], "wide.comp").write_text(
    "#version 450\\nlayout(binding = 0) buffer To { double to[]; };\\nvoid main() { to[0] *= 3.0; }\\n"
)
gpu = mapped()
gpu.queue.dispatch(Shaders(Path(sys.argv[1])).get("wide"), (1, 1, 1), b"", (gpu.allocator.allocate(4),))
gpu.queue.flush()
"""


@pytest.fixture
def complaints(tmp_path):
    """What the layer says of a program, and what the program says."""
    if not list(Path("/usr/share/vulkan/explicit_layer.d").glob("*khronos_validation*.json")):
        missing("no validation layer: apt-get install vulkan-validationlayers")

    def run(*program, gpu_assisted):
        (tmp_path / "vk_layer_settings.txt").write_text(SETTINGS + GPU_ASSISTED * gpu_assisted)
        done = run_python(
            *program,
            timeout=1800,
            VK_INSTANCE_LAYERS=LAYER,
            VK_LAYER_SETTINGS_PATH=str(tmp_path),
            TINYADEPT_DEBUG_ALLOCATOR="1",
            TINYADEPT_DEVICE=VULKAN,
            PYTHONPATH=os.pathsep.join([str(ROWS.parent), os.environ.get("PYTHONPATH", "")]),
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        return COMPLAINT.findall(done.stdout + done.stderr), done.stdout

    return run


def test_nothing_is_wrong_with_any_call_of_vulkan(complaints):
    found, told = complaints(ROWS, 1, "both", gpu_assisted=False)
    assert not found, found[:5]
    assert re.search(r"^made \d{3,} tensors", told, re.MULTILINE)


@pytest.mark.parametrize("bodies", ["lanes", "tiles"])
def test_no_kernel_leaves_its_buffers(complaints, bodies):
    found, told = complaints(
        ROWS, 1, bodies, *(() if "EVERY_ROW" in os.environ else CHOSEN), gpu_assisted=True
    )
    assert not found, found[:5]
    ran = re.search(r"^made \d{2,} tensors on .* with (.*)$", told, re.MULTILINE)[1].split()
    assert len(ran) >= 17


def test_a_kernel_that_leaves_its_buffers_is_reported(complaints):
    found, _ = complaints("-c", OUT_OF_BOUNDS, gpu_assisted=True)
    assert any("out of bounds" in line for line in found), found


def test_a_feature_that_is_not_enabled_is_reported(complaints, tmp_path):
    found, _ = complaints("-c", NO_FEATURE, tmp_path, gpu_assisted=False)
    assert any("VUID-VkShaderModuleCreateInfo-pCode" in line for line in found), found

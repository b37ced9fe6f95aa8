"""What a Vulkan device needs before it starts, and what is said where something is missing."""

import logging
import subprocess
import sys
from dataclasses import replace

import pytest
import rows
from conftest import run_python, vulkan

import tinyadept as ta
from tinyadept.backends import devices, start
from tinyadept.backends.vulkan import driver, probe
from tinyadept.backends.vulkan.debug import body

GPU = vulkan()


def test_an_op_without_a_kernel_is_named(monkeypatch):
    monkeypatch.setattr(GPU, "families", {})
    x = ta.tensor([1.0], device="vulkan")
    with pytest.raises(ta.Unsupported, match=r"exp.*float32.*vulkan"):
        x.exp()


def test_no_loader(monkeypatch):
    monkeypatch.setattr(probe, "LOADER", "libvulkan-that-is-not-there.so")
    probe.loader.cache_clear()
    with pytest.raises(ta.DeviceError, match=r"libvulkan-that.*apt-get install libvulkan1"):
        probe.loader()
    monkeypatch.undo()
    probe.loader.cache_clear()


def test_no_driver():
    code = "from tinyadept.backends.vulkan import start; start('vulkan')"
    done = run_python("-c", code, VK_DRIVER_FILES="/nowhere.json", VK_ICD_FILENAMES="/nowhere.json")
    said = done.stderr.splitlines()[-1]
    for part in (
        "DeviceError",
        "libvulkan.so.1 is there",
        "no driver",
        "apt-get install mesa-vulkan-drivers",
    ):
        assert part in said


def test_an_unknown_index_names_what_there_is():
    with pytest.raises(ta.DeviceError, match=r"no device vulkan:99: vulkan:0 is "):
        start("vulkan:99")


@pytest.mark.parametrize("limit", probe.NEEDED)
def test_a_device_below_a_limit_says_which(monkeypatch, limit):
    device = probe.choose()
    assert not device.lacks()
    least = probe.NEEDED[limit]
    weak = replace(device, limits=replace(device.limits, **{limit: least - 1}))
    monkeypatch.setattr(probe, "devices", lambda: (weak,))
    said = f"{device.name}.* cannot be used: its limit {limit} is {least - 1}, and {least} is needed"
    with pytest.raises(ta.DeviceError, match=said.replace("(", r"\(").replace(")", r"\)")):
        probe.choose()
    assert devices() == ["numpy"]


@pytest.mark.parametrize("tiled", [False, True])
def test_kernels_take_no_more_than_every_device_has(backend, monkeypatch, tiled):
    noted = []

    def dispatch(shader, groups, push, bindings, *rest, **more):
        noted.append((shader, len(bytes(push)), max(shader.bindings, len(bindings))))

    monkeypatch.setattr(backend.queue, "dispatch", dispatch)
    with body(backend, tiled):
        for _ in rows.everything(backend, examples=1):
            pass
    assert len(noted) > 400
    for shader, push, bindings in noted:
        assert push <= probe.NEEDED["push_constants"], shader
        assert bindings <= probe.NEEDED["storage_bindings"], shader


WIDE = {
    "upload": lambda: ta.tensor([1.0], ta.float64, "vulkan"),
    "create": lambda: ta.zeros(3, dtype=ta.float64, device="vulkan"),
    "cast": lambda: ta.ones(3, device="vulkan").double(),
    "index": lambda: ta.arange(3, dtype=ta.int64, device="vulkan"),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_dtypes_are_the_references(name):
    with pytest.raises(
        ta.Unsupported, match=r"(float64|int64) is not supported on vulkan.*reference.*'numpy'"
    ):
        WIDE[name]()


def test_no_kp(monkeypatch):
    monkeypatch.setitem(sys.modules, "kp", None)
    with pytest.raises(ta.DeviceError, match=r"kp 0\.9\.0.*scripts/vulkan\.sh"):
        driver.load_kp()
    assert devices() == ["numpy"]


def test_kp_leaves_logging_alone():
    done = run_python("-c", "import logging, tinyadept.backends.vulkan as v; v.start('vulkan'); "
                      "assert not logging.getLogger().handlers")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert logging.getLogger("kp")


def test_devices_and_their_report():
    assert devices()[:2] == ["numpy", "vulkan:0"]
    assert start("vulkan") is start(f"vulkan:{probe.choose().index}")
    done = subprocess.run(
        [sys.executable, "-m", "tinyadept.backends"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in ("numpy", "vulkan:0", "storage_range", "subgroup", "self-test              passed"):
        assert part in done.stdout

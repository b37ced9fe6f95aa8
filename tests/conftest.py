"""How the tests run: hypothesis without deadlines, and derandomised in CI; and on which devices."""

import gc
import os
import subprocess
import sys

import pytest
from fences import prove
from hypothesis import HealthCheck, settings

import tinyadept as ta
from tinyadept.backends.vulkan import drivers, probe, running
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.debug import body
from tinyadept.backends.vulkan.shaders import spelled

settings.register_profile(
    "oracle",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", 50)),
    derandomize=os.environ.get("CI") is not None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("oracle")


VULKAN = os.environ.get("TINYADEPT_TEST_DEVICE", "vulkan")
KEPT = 256 << 20  # bytes of arenas that stay from file to file


def missing(what, module=False):
    """Skip for want of something, loudly; in CI, where nothing may be missing, fail."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what, allow_module_level=module)


def started():
    """The Vulkan backend under test, every submit of which is proved to have the fences that it needs."""
    backend = ta.device.resolve(VULKAN)
    if prove not in backend.queue.observers:
        backend.queue.observers.append(prove)
    return backend


def vulkan():
    """The Vulkan backend, for a module of tests that are about nothing else."""
    try:
        return started()
    except ta.DeviceError as error:
        return missing(f"no Vulkan here: {error}", module=True)


def usable():
    """Whether Vulkan starts; in CI it must."""
    try:
        started()
    except ta.DeviceError:
        if os.environ.get("CI"):
            raise
        return False
    return True


absent = pytest.mark.skipif(not usable(), reason=f"{VULKAN} does not start here")
DEVICES = ["numpy", pytest.param(VULKAN, marks=absent)]


@pytest.fixture
def backend():
    """A Vulkan backend of its own, for tests that break it or count what it does."""
    fresh = Vulkan("vulkan", probe.choose())
    yield fresh
    fresh.close()


def run_python(*arguments, timeout=120, **environment):
    """A program in a process of its own: ``-c`` and its text, or a file, then its arguments."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        check=False,
    )


BODIES = {"own": None, "lanes of 4": (False, 4), "tiles of 4": (True, 4), "tiles of 64": (True, 64)}


@pytest.fixture(params=BODIES)
def gpu(request):
    """The device as it is; and either body, also with workgroups so small that all work has a ragged end."""
    backend = vulkan()
    if BODIES[request.param] is None:
        yield backend
    else:
        with body(backend, *BODIES[request.param]):
            yield backend


@pytest.fixture
def other_body():
    """The Vulkan backend with the kernels' other bodies: a CPU's takes those for GPUs."""
    gpu = vulkan()
    with body(gpu, not gpu.tiled):
        yield gpu


@pytest.fixture(scope="module", autouse=True)
def given_back():
    """Large arenas that one file's tests needed are not kept for the next file's."""
    yield
    for started in running.values():
        if started.allocator.reserved > KEPT:
            gc.collect()
            started.allocator.release()


@pytest.fixture(scope="session", autouse=True)
def shipped():
    """Every shader that any test asked the package for is among those that a wheel has."""
    yield
    wanted = {(name, spelled(macros)) for name, macros in drivers.variants()}
    for started in running.values():
        asked = {(shader.name, shader.macros) for shader in started.shaders.known.values() if not shader.own}
        assert asked <= wanted, f"not among the variants of the drivers: {asked - wanted}"

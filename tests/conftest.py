"""How the tests run: hypothesis without deadlines, and derandomised in CI; and on which devices."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "oracle",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", 50)),
    derandomize=os.environ.get("CI") is not None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("oracle")


def usable(device):
    """Whether a device starts; in CI all must."""
    import tinyadept as ta

    try:
        ta.device.resolve(device)
    except ta.DeviceError:
        if os.environ.get("CI"):
            raise
        return False
    return True


VULKAN = os.environ.get("TINYADEPT_TEST_DEVICE", "vulkan")
absent = pytest.mark.skipif(not usable(VULKAN), reason=f"{VULKAN} does not start here")
DEVICES = ["numpy", pytest.param(VULKAN, marks=absent)]

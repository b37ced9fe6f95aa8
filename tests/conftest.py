"""How the tests run: hypothesis without deadlines, and derandomised in CI."""

import os

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

"""How long the properties are searched; the same cases every time where CI is set."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "zael",
    max_examples=int(os.environ.get("ZAEL_PROPERTY_EXAMPLES", "10")),
    deadline=None,  # the machine may be shared; pytest-timeout watches over all tests
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("zael")

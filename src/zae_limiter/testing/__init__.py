"""For tests of your own code: a fake clock, outages on demand, and fixtures for pytest.

``FakeClock`` goes wherever a ``clock=`` is taken, ``outage(repository)`` makes its store fail, and
``zae_limiter.testing.plugin`` has the fixtures, which pytest finds by itself. The suite that every
engine passes is a package of its own: ``contract/`` in the repository.
"""

from zae_limiter.testing.clock import FakeClock
from zae_limiter.testing.outage import outage

__all__ = ["FakeClock", "outage"]

"""Tools for tests of your own code: a fake clock, outages on demand, and fixtures for pytest.

Pass a ``FakeClock`` as ``clock=``. ``outage(repository)`` makes the store of a repository fail.
pytest finds the fixtures in ``zae_limiter.testing.plugin`` by itself. The contract suite, which
every engine passes, is a package of its own: ``contract/`` in the repository.
"""

from zae_limiter.testing.clock import FakeClock
from zae_limiter.testing.outage import outage

__all__ = ["FakeClock", "outage"]

"""For tests of your own code: ``FakeClock``, which goes wherever a ``clock=`` is taken.

The suite that every engine passes is a package of its own: ``contract/`` in the repository.
"""

from zae_limiter.testing.clock import FakeClock

__all__ = ["FakeClock"]

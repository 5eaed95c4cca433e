"""Tools for tests: a clock that stands still, and the suite that every engine passes.

``FakeClock`` goes wherever a ``clock=`` is taken; ``zae_limiter.testing.contract`` checks an
engine against the promises of its ports (needs pytest and pytest-asyncio).
"""

from zae_limiter.testing.clock import FakeClock

__all__ = ["FakeClock"]

"""Ends while a generator is suspended inside a lease."""

import sys

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 100)]


def stream(limiter):
    with limiter.acquire("user-1", "api", {"rpm": 1}, limits=LIMITS):
        yield from range(10)


if __name__ == "__main__":
    namespace, url = sys.argv[1:]
    repo = SyncRepository.open(namespace, url=url, clock=FakeClock())
    generator = stream(SyncRateLimiter(repo))
    next(generator)
    sys.stdout.write("over\n")

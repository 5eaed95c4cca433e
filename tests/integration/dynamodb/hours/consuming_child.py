"""Consumes one token at a time until it is killed, and says when one was granted."""

import sys

from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

if __name__ == "__main__":
    url, entity, now_ms = sys.argv[1:]
    repo = SyncRepository.open("default", url=url, clock=FakeClock(int(now_ms)))
    limiter = SyncRateLimiter(repo)
    while True:
        with limiter.acquire(entity, "api", {"rpm": 1}):
            sys.stdout.write("granted\n")
            sys.stdout.flush()

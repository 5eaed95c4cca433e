"""A host whose wall clock is off: calls 20 times a second, then takes all it can get, in turns.

Prints its clock's offset from the time since boot, then, for each turn that a line of the standard
input starts, what it was admitted, and when it began and ended.
"""

import sys
import time
from contextlib import suppress

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.clock import ServerClock, since_boot_ns

CALLS_PER_S = 20
TURN_NS = 250_000_000
READINGS = 20_000
AMOUNT = 4  # so that a slow machine empties the bucket, too


def say(*values):
    sys.stdout.write(" ".join(map(str, values)) + "\n")
    sys.stdout.flush()


def call_for(limiter, entity_id, seconds):
    until_ns = since_boot_ns() + seconds * 1_000_000_000
    limits = [Limit.per_second("rps", 1000)]
    while since_boot_ns() < until_ns:
        with limiter.acquire(entity_id, "api", {"rps": 1}, limits=limits):
            time.sleep(1 / CALLS_PER_S)


def offset_ns(clock):
    """Find the offset of a clock that tells whole milliseconds: the highest of many."""
    return max(clock() * 1_000_000 - since_boot_ns() for _ in range(READINGS))


def take_all(limiter, limits):
    began_ns = since_boot_ns()
    admitted = 0
    while since_boot_ns() - began_ns < TURN_NS:
        with (
            suppress(RateLimitExceeded),
            limiter.acquire("both", "api", {"rps": AMOUNT}, limits=limits),
        ):
            admitted += AMOUNT
    return admitted, began_ns, since_boot_ns()


def main(namespace, url, off_s, seconds):
    off_ns = round(float(off_s) * 1_000_000_000)
    clock = ServerClock(wall_ns=lambda: time.time_ns() + off_ns)
    repository = SyncRepository.open(namespace, url=url, clock=clock)
    limiter = SyncRateLimiter(repository)
    limits = [Limit.per_second("rps", 100)]
    call_for(limiter, f"host-{off_ns}", int(seconds))
    say(offset_ns(clock))
    for _ in sys.stdin:
        say(*take_all(limiter, limits))


if __name__ == "__main__":
    main(*sys.argv[1:])

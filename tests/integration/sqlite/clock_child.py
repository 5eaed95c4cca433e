"""A process with a boot clock and a wall clock that its standard input sets.

Each line is both in nanoseconds; the process charges once and says the time of its clock.
"""

import sys

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.clock import SharedClock


def say(now_ms):
    sys.stdout.write(f"{now_ms}\n")
    sys.stdout.flush()


def main(url):
    boot_ns, wall_ns = map(int, sys.stdin.readline().split())
    clock = SharedClock(lambda: wall_ns, lambda: boot_ns)
    with SyncRepository.open(url=url, clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        limits = [Limit.per_second("rps", 1000)]
        say(clock())
        for line in sys.stdin:
            boot_ns, wall_ns = map(int, line.split())
            with limiter.acquire("user", "api", {"rps": 1}, limits=limits):
                say(clock())


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that opens a file at the same moment as others and uses it."""

import sys

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    with SyncRepository.open(url=sys.argv[1]) as repository:
        limits = [Limit.custom("rpm", 100, 1, 86_400)]
        with SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}, limits):
            pass
        sys.stdout.write(f"{repository.namespace_id}\n")

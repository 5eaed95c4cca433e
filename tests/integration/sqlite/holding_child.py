"""A process that holds the lock between processes and does not let go."""

import sys
import time

from zae_limiter.embedded.sqlite.file_lock import FileLock

if __name__ == "__main__":
    lock = FileLock(sys.argv[1])
    if not lock.acquire(time.monotonic() + 5):
        sys.exit(1)
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.readline()

"""A process that looks at a file and uses it with no more rights than its owner has."""

import ctypes
import os
import sys

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ZAELimiterError

PR_CAPBSET_DROP = 24
PAST_PERMISSIONS = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
OBEYS = "obeys"
PATIENT = "patient"  # tries once more after each line that it reads


def obey_permissions():
    """Start again as a root user to which the permissions of files apply."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in PAST_PERMISSIONS:
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_CAPBSET_DROP")
    os.execv(sys.executable, [sys.executable, *sys.argv, OBEYS])


def use(url):
    """Says how far it gets."""
    try:
        with SyncRepository.open(url=url) as repository:
            yield "opened"
            repository.list_namespaces()
            yield "looked"
            yield acquired(repository)
            while PATIENT in sys.argv and sys.stdin.readline():
                yield acquired(repository)
    except ZAELimiterError as error:
        yield type(error).__name__


def acquired(repository):
    limits = [Limit.per_minute("rpm", 10)]
    try:
        with SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}, limits):
            return "acquired"
    except ZAELimiterError as error:
        return type(error).__name__


if __name__ == "__main__":
    if os.getuid() == 0 and sys.argv[-1] != OBEYS:
        obey_permissions()
    for word in use(sys.argv[1]):
        sys.stdout.write(word + " ")
        sys.stdout.flush()

"""Uses the limiter; before each line of the package that the main thread comes to, a signal
strikes whose handler uses the limiter as well."""

import faulthandler
import signal
import sys
from pathlib import Path

import zae_limiter
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

PACKAGE = str(Path(zae_limiter.__file__).parent)
HANGS_S, LONG_S = 40, 30
MOST = 400


class Interrupted:
    """Runs something, and strikes at each line once; ``used`` counts handlers that got through."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.struck = self.used = 0
        self._lines = set()
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, *_):
        with self.limiter.acquire("handler", "api", {"rpm": 1}):
            self.used += 1

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        line = (frame.f_code, frame.f_lineno)
        if event == "line" and line not in self._lines and self.struck < MOST:
            self._lines.add(line)
            self.struck += 1
            signal.raise_signal(signal.SIGUSR1)
        return self._trace

    def run(self, work):
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(None)


def works(repo, limiter):
    def take(entity_id):
        with limiter.acquire(entity_id, "api", {"rpm": 1}):
            pass

    def settle():
        with limiter.acquire("user", "api", {"rpm": 1}) as lease:
            lease.adjust(rpm=1)

    return {
        "stats": repo.get_stats,
        "acquire": lambda: take("user"),
        "settle": settle,
        "buckets": lambda: repo.get_buckets("user"),
        "configuration": lambda: (repo.invalidate_config_cache(), take("user")),
        "cascade": lambda: take("key"),
    }


def main(namespace, url, what):
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    # Hundreds of handlers run within one call: its time must be enough for all of them.
    repo = SyncRepository.open(namespace, url=url, clock=FakeClock(), request_timeout=LONG_S)
    repo.create_entity("org")
    repo.create_entity("key", parent_id="org", cascade=True)
    repo.set_system_defaults([Limit.per_minute("rpm", 10**6)])
    limiter = SyncRateLimiter(repo)
    for entity_id in ("handler", "user", "key"):
        with limiter.acquire(entity_id, "api", {"rpm": 1}):
            pass
    interrupted = Interrupted(limiter)
    interrupted.run(works(repo, limiter)[what])
    sys.stdout.write(f"{interrupted.struck}\n{interrupted.used}\n")
    repo.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A thread goes on charging a child and its parent when the main thread is over."""

import sys
import threading

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock


def say(what):
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def work(repo, limiter):
    threading.main_thread().join()
    for _ in range(3):
        with limiter.acquire("key", "api", {"rpm": 1}) as lease:
            say("charged")
            lease.adjust(rpm=1)
    say(f"left {repo.get_bucket('org', 'api', 'rpm').tokens}")


def main(namespace, url):
    repo = SyncRepository.open(namespace, url=url, clock=FakeClock(), parallel_mode="threadpool")
    repo.create_entity("org")
    repo.create_entity("key", parent_id="org", cascade=True)
    repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    limiter = SyncRateLimiter(repo)
    with limiter.acquire("key", "api", {"rpm": 1}):
        pass
    threading.Thread(target=work, args=(repo, limiter)).start()
    say("over")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program of greenlets that wait for tokens, of which some are killed or time out.

Run as ``python waiting_program.py URL NAMESPACE SEED``. The namespace has its limits already.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402

import gevent  # noqa: E402

from zae_limiter import SyncRateLimiter, SyncRepository  # noqa: E402

CALLERS = 30


def main(url, namespace, seed):
    rng = random.Random(seed)
    outcomes = Counter()
    with SyncRepository.open(namespace, url=url, request_timeout=10) as repo:
        limiter = SyncRateLimiter(repo)

        def call(seconds):
            try:
                with gevent.Timeout(seconds):
                    with limiter.acquire("user-1", "api", {"rps": 1}, timeout=30):
                        pass
                    outcomes["kept"] += 1
            except gevent.Timeout:
                outcomes["timed out"] += 1
            except gevent.GreenletExit:
                outcomes["killed"] += 1

        callers = [
            gevent.spawn(call, rng.uniform(0.05, 0.5) if rng.random() < 0.3 else 30)
            for _ in range(CALLERS)
        ]
        gevent.sleep(0.2)
        for victim in rng.sample(callers, 8):
            gevent.sleep(rng.uniform(0, 0.03))
            victim.kill(block=False)
        gevent.joinall(callers)
        outcomes["lost"] = repo.lost_settlements
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""A program of greenlets that are killed and time out inside acquires; prints what became of them.

Run as ``python program.py URL NAMESPACE SEED``. The namespace has its limits already.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402

import gevent  # noqa: E402

from zae_limiter import SyncRateLimiter, SyncRepository  # noqa: E402

CALLERS = 60
LONGEST_S = 0.06


def main(url, namespace, seed):
    rng = random.Random(seed)
    outcomes = Counter()
    with SyncRepository.open(namespace, url=url, request_timeout=10) as repo:
        limiter = SyncRateLimiter(repo)

        def call():
            with limiter.acquire("user-1", "api", {"rpm": 1}):
                gevent.sleep(0.001)

        def patient():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - counted by the test
                outcomes[f"failed: {error!r}"] += 1
            else:
                outcomes["kept"] += 1

        def hasty(seconds):
            try:
                with gevent.Timeout(seconds):
                    call()
                    outcomes["kept"] += 1
            except gevent.Timeout:
                outcomes["timed out"] += 1

        def killed():
            try:
                call()
                outcomes["kept"] += 1
            except gevent.GreenletExit:
                outcomes["killed"] += 1

        callers, victims = [], []
        for _ in range(CALLERS):
            callers.append(gevent.spawn(patient))
            callers.append(gevent.spawn(hasty, rng.uniform(0.0001, LONGEST_S)))
            callers.append(gevent.spawn(killed))
            victims.append(callers[-1])
            if rng.random() < 0.2:
                gevent.sleep(rng.uniform(0, 0.005))
            if rng.random() < 0.5:
                rng.choice(victims).kill(block=False)
        for victim in victims:
            gevent.sleep(rng.uniform(0, 0.001))
            victim.kill(block=False)
        gevent.joinall(callers)
        outcomes["lost"] = repo.lost_settlements
        outcomes["unstarted"] = sum(isinstance(each.value, gevent.GreenletExit) for each in callers)
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""A process whose tasks wait for one bucket; prints a line of JSON for everything that happens.

Run as ``python -m tests.integration.waiting.child URL SEED CALLERS CANCELS WITHIN TIMEOUT``: the
callers arrive within so many seconds. It says "ready" and waits for a line on stdin. Moments are of
the boot clock, which all processes of a machine share.
"""

import asyncio
import json
import random
import sys
import time

from zae_limiter import RateLimiter, RateLimitExceeded, Repository


def say(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def now_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def main(url, seed, callers, cancels, within_s, timeout_s):
    chance = random.Random(seed)
    async with Repository.open(url=url, provision="never", request_timeout=10) as repo:
        limiter = RateLimiter(repo)
        await limiter.available("user-1", "api")
        say(ready=True)
        sys.stdin.readline()

        async def call():
            await asyncio.sleep(chance.uniform(0, within_s))
            try:
                async with limiter.acquire("user-1", "api", {"x": 1}, timeout=timeout_s):
                    say(entered=now_s())
            except RateLimitExceeded:
                say(rejected=now_s())
            except asyncio.CancelledError:
                say(given_back=now_s())

        tasks = [asyncio.create_task(call()) for _ in range(callers)]
        for task in tasks:
            if chance.random() < cancels:
                asyncio.get_running_loop().call_later(chance.uniform(1, 10), task.cancel)
        await asyncio.gather(*tasks)
        stats = repo.get_stats()
    say(writes=stats.writes, refused=stats.refused_writes, lost=stats.lost_refunds)


if __name__ == "__main__":
    url, seed, callers, *numbers = sys.argv[1:]
    asyncio.run(main(url, int(seed), int(callers), *map(float, numbers)))

"""A process that acquires from one bucket for a while, with a few tasks; prints what it did."""

import asyncio
import json
import sys
import time

from zae_limiter import RateLimiter, Repository

TASKS = 8


async def press(url, namespace, seconds):
    async with await Repository.open(namespace, url=url) as repository:
        limiter, stop, granted = RateLimiter(repository), time.monotonic() + seconds, 0

        async def work():
            nonlocal granted
            while time.monotonic() < stop:
                async with limiter.acquire("user-1", "api", {"rpm": 1}):
                    granted += 1

        await asyncio.gather(*(work() for _ in range(TASKS)))
        return {"granted": granted, "splits": repository.get_stats().splits}


if __name__ == "__main__":
    found = asyncio.run(press(sys.argv[1], sys.argv[2], float(sys.argv[3])))
    sys.stdout.write(json.dumps(found))

"""A process that acquires without end and says so after each grant; it is there to be killed."""

import asyncio
import sys
from itertools import count

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository

AT_ONCE = 4


def say(number):
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def in_threads(url):
    limiter = SyncRateLimiter(SyncRepository.open(url=url))
    for number in count(1):
        with limiter.acquire("user", "api", {"rpm": 1}):
            say(number)


async def in_tasks(url):
    limiter = RateLimiter(await Repository.open(url=url))
    numbers = count(1)

    async def work():
        while True:
            async with limiter.acquire("user", "api", {"rpm": 1}):
                say(next(numbers))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    tree, address = sys.argv[1:]
    if tree == "sync":
        in_threads(address)
    else:
        asyncio.run(in_tasks(address))

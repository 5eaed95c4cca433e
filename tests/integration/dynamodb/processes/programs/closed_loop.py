"""Three event loops want one bucket; the one that is next in line is closed without a word."""

import asyncio
import logging
import os
import sys

from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 1000)]
AT_MOST_S = 5


class Caller:
    """A loop of its own, and one acquire in it."""

    def __init__(self, limiter, entity_id):
        self.loop = asyncio.new_event_loop()
        self.task = self.loop.create_task(take(limiter, entity_id))

    def start(self):
        """Until it writes or waits, not longer."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def finish(self):
        async def result():
            async with asyncio.timeout(AT_MOST_S):
                return await self.task

        return self.loop.run_until_complete(result())


async def take(limiter, entity_id):
    async with limiter.acquire(entity_id, "api", {"rpm": 1}, limits=LIMITS):
        return True


def in_line(repo, limiter, entity_id):
    """Two callers, of which the second one waits for the first; None if it came too late."""
    asyncio.run(take(limiter, entity_id))
    before = repo.get_stats().writes
    first, second = Caller(limiter, entity_id), Caller(limiter, entity_id)
    first.start()
    second.start()
    return (first, second) if repo.get_stats().writes == before + 1 else None


def main(namespace, url):
    logging.disable(logging.CRITICAL)
    repo = asyncio.run(Repository.open(namespace, url=url, clock=FakeClock()))
    limiter = RateLimiter(repo)
    for number in range(50):
        entity_id = f"user-{number}"
        if callers := in_line(repo, limiter, entity_id):
            break
    leader, gone = callers
    other = Caller(limiter, entity_id)
    other.start()
    gone.loop.close()
    say("leader", leader.finish())
    say("other", other.finish())
    say("next", asyncio.run(take(limiter, entity_id)))
    os._exit(0)  # what the closed loop has left would complain


def say(*what):
    sys.stdout.write(" ".join(map(str, what)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

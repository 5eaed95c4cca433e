"""The program of a test's child processes. It makes many acquires and counts the grants."""

from __future__ import annotations

import asyncio  # unasync: remove
import pickle
import sys
from typing import NamedTuple

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract.together import agather


class Job(NamedTuple):
    """A number of acquires of one token each, and how many of them run at a time."""

    spec: EngineSpec
    now_ms: int
    entity_id: str
    tries: int
    at_once: int


async def work(job: Job) -> int:
    """Open the store, wait for the signal to start, and count the grants."""
    repository = await job.spec.open(clock=FakeClock(job.now_ms))
    limiter = RateLimiter(repository)

    async def attempt() -> bool:
        try:
            async with limiter.acquire(job.entity_id, "api", {"rpm": 1}):
                return True
        except RateLimitExceeded:
            return False

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.readline()
    granted = 0
    for _ in range(job.tries // job.at_once):
        granted += sum(await agather([attempt] * job.at_once))
    await repository.close()
    return granted


def main() -> None:
    """Do the job that the parent process has pickled."""
    job: Job = pickle.load(sys.stdin.buffer)
    granted = asyncio.run(work(job))  # unasync: remove
    # sync: granted = work(job)
    sys.stdout.write(f"{granted}\n")


if __name__ == "__main__":
    main()

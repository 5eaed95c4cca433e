"""The program of a child process that settles a call at once and is killed in its block."""

from __future__ import annotations

import asyncio  # unasync: remove
import pickle
import sys
from typing import Any, NamedTuple

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.spec import EngineSpec


class SettlingJob(NamedTuple):
    """The amounts of a call, and its costs that are settled at once, by resource."""

    spec: EngineSpec
    now_ms: int
    entity_id: str
    amounts: dict[str, dict[str, Any]]
    costs: dict[str, dict[str, Any]]


async def work(job: SettlingJob) -> None:
    """Settle a call at once, say so, and stay in the block."""
    repository = await job.spec.open(clock=FakeClock(job.now_ms))
    (resource, amounts), *further = job.amounts.items()
    limiter = RateLimiter(repository)
    async with limiter.acquire(job.entity_id, resource, amounts, also=dict(further)) as lease:
        for name, cost in job.costs.items():
            await lease.resource(name).settle(cost, now=True)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.buffer.readline()


def main() -> None:
    """Do the job that the parent process has pickled."""
    job: SettlingJob = pickle.load(sys.stdin.buffer)
    asyncio.run(work(job))  # unasync: remove
    # sync: work(job)


if __name__ == "__main__":
    main()

"""Many light keys: the CPU of an acquire in the second and third hour of a day, beside usage off.

    python -m benchmarks.hours --rounds 5

Fifty tasks charge a thousand keys once in each hour, on a local server without an aggregator. The
second hour turns the first one in the bucket; the third hour also stores the first one in its row.
Both limiters, with usage and without it, run in turns. Figures are reported, and nothing is
promised here.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median

from benchmarks.dynamodb_server import Place, fresh_table
from tests.support.dynamodb.tables import store_url
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.testing import FakeClock

TASKS, KEYS, HOURS = 50, 1000, 3
LIMITS = [Limit.per_minute("rpm", 1000), Limit.per_minute("tpm", 100_000)]
AMOUNTS = {"rpm": 1, "tpm": 500}
HOUR_MS = 3_600_000
# A whole UTC day, so that the hours of a round lie in one row of usage.
MIDNIGHT_MS = 1_900_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS


async def hours_of(place: Place, retention_days: int, keys: list[str]) -> list[float]:
    """Return the CPU of an acquire in microseconds, for each hour of a day of new keys."""
    clock = FakeClock(MIDNIGHT_MS)
    repository = await (
        Repository.builder()
        .url(store_url(place.table, place.endpoint))
        .provision("table")
        .usage_retention_days(retention_days)
        .request_timeout(30)
        .clock(clock)
        .build()
    )
    async with repository:
        await repository.set_system_defaults(LIMITS)
        limiter = RateLimiter(repository)
        return [await _hour(limiter, clock, keys) for _ in range(HOURS)]


async def _hour(limiter: RateLimiter, clock: FakeClock, keys: list[str]) -> float:
    waiting = iter(keys)

    async def work() -> None:
        for key in waiting:
            async with limiter.acquire(key, "api", AMOUNTS):
                pass

    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(TASKS)))
    await limiter.list_resources()  # waits for writes in the background
    used = time.process_time() - began
    clock.advance(ms=HOUR_MS)
    return used / len(keys) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hours", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ratios: list[list[float]] = [[] for _ in range(HOURS)]
    for number in range(rounds):
        found = {}
        for days in (0, 90) if number % 2 else (90, 0):
            keys = [f"key-{number}-{key}" for key in range(KEYS)]
            with fresh_table() as place:
                found[days] = asyncio.run(hours_of(place, days, keys))
        for hour in range(HOURS):
            ratios[hour].append(found[90][hour] / found[0][hour])
        print(
            f"round {number + 1}: with usage {_shown(found[90])} µs, without {_shown(found[0])} µs"
        )
    for hour, name in enumerate(("first", "second", "third")):
        print(f"{name} hour of the day: {median(ratios[hour]):.2f} × of usage off")


def _shown(times: list[float]) -> str:
    return " / ".join(f"{each:.0f}" for each in times)


if __name__ == "__main__":
    main()

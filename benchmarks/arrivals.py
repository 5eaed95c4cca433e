"""Acquires that come when they come, 100 a second on one bucket: the cost of waiting for others.

The same arrivals (a Poisson process) once with one repository, where they share writes, and once
with so many repositories that no two calls meet in one, where each has its own write.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import NamedTuple

from benchmarks.cases import AsyncAcquire
from benchmarks.contestants._table import BUSY, acquire_of, open_repository
from benchmarks.dynamodb_server import Place, fresh_table
from benchmarks.measure import percentile
from tests.support.dynamodb import Proxy

PER_SECOND = 100
APART = 40  # repositories: more than are ever under way at once
LINKS_MS = (0, 10, 30)  # there and back, on top of the server's time
KEY = "user-0"


class ArrivalsRun(NamedTuple):
    """One stretch of time in both ways, with the same arrivals."""

    link_ms: int
    shared_p50_ms: float
    shared_p99_ms: float
    apart_p50_ms: float
    apart_p99_ms: float
    writes_per_acquire: float

    @property
    def ratio(self) -> float:
        return self.shared_p50_ms / self.apart_p50_ms


def run_arrivals(link_ms: int, seconds: float, seed: int) -> ArrivalsRun:
    """Both ways, one after the other; every other time the other way round."""
    return asyncio.run(_run(link_ms, seconds, seed))


def summary(runs: list[ArrivalsRun]) -> ArrivalsRun:
    """The median of each figure."""
    return ArrivalsRun(*(median(figures) for figures in zip(*runs, strict=True)))


async def _run(link_ms: int, seconds: float, seed: int) -> ArrivalsRun:
    random_ = random.Random(seed)
    gaps = [random_.expovariate(PER_SECOND) for _ in range(round(PER_SECOND * seconds))]
    with fresh_table() as place, Proxy(place.endpoint) as proxy:
        behind = Place(place.table, proxy.url)
        async with AsyncExitStack() as stack:
            acquires = []
            for number in range(APART + 1):
                opened = open_repository(behind, None if number else BUSY)
                acquires.append(acquire_of(await stack.enter_async_context(opened)))
                await acquires[-1](KEY)
            proxy.link.request_ms = proxy.link.answer_ms = link_ms / 2
            waits, writes = {}, {}
            for is_shared in (True, False) if seed % 2 else (False, True):
                with proxy.measure() as seen:
                    waits[is_shared] = await _arrive(
                        acquires[:1] * APART if is_shared else acquires[1:], gaps
                    )
                writes[is_shared] = len(seen.of("UpdateItem"))
    return ArrivalsRun(
        link_ms,
        percentile(waits[True], 50) * 1000,
        percentile(waits[True], 99) * 1000,
        percentile(waits[False], 50) * 1000,
        percentile(waits[False], 99) * 1000,
        writes[True] / len(gaps),
    )


async def _arrive(acquires: list[AsyncAcquire], gaps: list[float]) -> list[float]:
    """How long each waited, from the moment it was due."""
    free, waits = list(acquires), []

    async def one(acquire: AsyncAcquire, due: float) -> None:
        await acquire(KEY)
        waits.append(time.perf_counter() - due)
        free.append(acquire)

    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for gap in gaps:
            due += gap
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(free.pop() if free else acquires[0], due))
    return waits

"""Many tasks on one bucket, in one process or in several: how many writes an acquire costs.

The figures of the table are taken without anybody between client and server. Writes are counted by
a proxy in a second run, refused ones included, since those are billed like any other.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

from benchmarks.contestants._table import (
    AMOUNTS,
    BUSY,
    PARENT,
    acquire_of,
    open_repository,
    open_sync_repository,
    sync_acquire_of,
)
from benchmarks.dynamodb_server import Place, fresh_table
from benchmarks.measure import percentile
from tests.support.dynamodb import Proxy
from zae_limiter import Limit

START_TIMEOUT_S = 120
KEY = "user-0"


class Crowd(NamedTuple):
    """``tasks`` in each of ``processes`` on one bucket.

    At half load the limits let twice as many through a second as the crowd before it took: the
    bucket is full one moment and in use the next, and what one process knows of it is often wrong.
    """

    name: str
    processes: int
    tasks: int
    half_load: bool = False


class Share(NamedTuple):
    """The figures of one process."""

    acquires: int
    rejected: int
    wall_s: float
    waits_s: list[float]


class CrowdRun(NamedTuple):
    """All processes together; rates without and with the proxy."""

    per_second: float
    counted_per_second: float
    p50_ms: float
    p99_ms: float
    rejected: int
    writes_per_acquire: float
    refused_per_acquire: float


CROWD = Crowd("1 process × 200 tasks", 1, 200)
PROCESSES = Crowd("8 processes × 50 tasks", 8, 50)
HALF_LOAD = Crowd("8 processes × 50 tasks, half load", 8, 50, half_load=True)
CROWDS = [CROWD, PROCESSES, HALF_LOAD]


def run_crowds(seconds: float, show: Callable[[str], None]) -> dict[str, CrowdRun]:
    """All of them, in order."""
    runs: dict[str, CrowdRun] = {}
    before: CrowdRun | None = None
    for crowd in CROWDS:
        show(f"one bucket, {crowd.name}")
        before = runs[crowd.name] = _run_crowd(crowd, seconds, before)
    return runs


def _run_crowd(crowd: Crowd, seconds: float, before: CrowdRun | None) -> CrowdRun:
    """Once for speed, once for counting."""
    half = before if crowd.half_load else None
    with _bucket(BUSY if half is None else _twice(half.per_second)) as place:
        shares = _run(crowd, place, seconds)
    limits = BUSY if half is None else _twice(half.counted_per_second)
    with _bucket(limits) as place, Proxy(place.endpoint) as proxy, proxy.measure() as seen:
        counted_shares = _run(crowd, Place(place.table, proxy.url), seconds)
    counted = sum(share.acquires for share in counted_shares)
    waits = [wait for share in shares for wait in share.waits_s]
    updates = seen.of("UpdateItem")
    return CrowdRun(
        _rate(shares),
        _rate(counted_shares),
        percentile(waits, 50) * 1000,
        percentile(waits, 99) * 1000,
        sum(share.rejected for share in (*shares, *counted_shares)),
        len(updates) / counted,
        sum(each.status != 200 for each in updates) / counted,
    )


def _rate(shares: list[Share]) -> float:
    return sum(share.acquires / share.wall_s for share in shares)


def _twice(per_second: float) -> list[Limit]:
    return [
        Limit.per_second(name, round(2 * per_second) * amount) for name, amount in AMOUNTS.items()
    ]


@contextmanager
def _bucket(limits: list[Limit]) -> Iterator[Place]:
    """A table with a namespace and limits, before anybody races for them."""
    with fresh_table(apart=False) as place:
        with open_sync_repository(place, limits) as repository:
            sync_acquire_of(repository)(PARENT)
        yield place


def _run(crowd: Crowd, place: Place, seconds: float) -> list[Share]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(crowd.processes), context.Queue()
    processes = [
        context.Process(target=_process, args=(crowd, place, seconds, barrier, results))
        for _ in range(crowd.processes)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=START_TIMEOUT_S + seconds) for _ in processes]
    for process in processes:
        process.join()
    return found


def _process(
    crowd: Crowd,
    place: Place,
    seconds: float,
    barrier: Barrier,
    results: Queue[Share],
) -> None:
    results.put(asyncio.run(_acquire(crowd, place, seconds, barrier)))


async def _acquire(crowd: Crowd, place: Place, seconds: float, barrier: Barrier) -> Share:
    waits: list[float] = []
    granted = rejected = 0
    async with open_repository(place) as repository:
        acquire: Any = acquire_of(repository)
        await acquire(KEY)
        await asyncio.to_thread(barrier.wait, START_TIMEOUT_S)
        until = (started := time.perf_counter()) + seconds

        async def work() -> None:
            nonlocal granted, rejected
            before = time.perf_counter()
            while before < until:
                if await acquire(KEY):
                    granted += 1
                else:
                    rejected += 1
                now = time.perf_counter()
                waits.append(now - before)
                before = now

        await asyncio.gather(*(work() for _ in range(crowd.tasks)))
        return Share(granted, rejected, time.perf_counter() - started, waits)

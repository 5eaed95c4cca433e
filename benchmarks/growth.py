"""Growth: stores and caches with more and more entities, each in a process of its own.

    python -m benchmarks --only growth --entities 200000

Every tenth of the entities is timed by the processor's time of the process, which other programs
on the machine change little; so is the longest pause, where one thread does everything. A pause is
promised of the memory engine only. The longest one of the cache of buckets is a full garbage
collection, to which 50,000 buckets add 50 to 75 ms. Tasks that share transactions of SQLite wait
for each other and for the disk: their longest wait is by the clock on the wall.

A million entities take SQLite many minutes, in which the machine itself becomes faster or slower by
half. So its last tenth is compared with a file that was empty when that tenth began, in turns.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.verdict import Verdict
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

PARTS = 10
SAMPLES = 20  # of one part: their median leaves out rare events
ALLOWED = 1.2  # the last part may take so many times as long as the first
LONGEST_MS = 50.0  # of one acquire, garbage collection included
TASKS = 200  # callers of SQLite that share transactions
# No bucket expires during a run: all entities are alive in the end.
LIMITS = [Limit.per_day("rpm", 1000), Limit.per_day("tpm", 10**6)]
# A bucket expires seconds after its charge: as many are deleted as made, with a row of usage each.
EXPIRING = [Limit.per_second("rpm", 1000), Limit.per_second("tpm", 10**6)]
EXPIRING_FIRST = 50_000  # made before anything is timed: deletion has begun by then
AMOUNTS = {"rpm": 1, "tpm": 100}
PAGE_BYTES = 4096


class Growth(NamedTuple):
    """The cost of the last tenth of the entities, and of the first or as many in an empty file."""

    store: str
    entities: int
    first_us: float
    last_us: float
    longest_ms: float
    memory_mb: float

    @property
    def ratio(self) -> float:
        return self.last_us / self.first_us


def grown(entities: int, show: Callable[[str], None]) -> list[Growth]:
    """Measure every store and cache, one after the other."""
    results = []
    for store in STORES:
        show(f"growth, {store}")
        command = [sys.executable, "-m", "benchmarks.growth", store, str(entities)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        results.append(Growth(*json.loads(done.stdout)))
    return results


def print_growth(console: Console, results: list[Growth]) -> None:
    begin = "first tenth, or empty"
    table = Table("growth", "entities", begin, "last tenth", "longest", "memory")
    for row in results:
        table.add_row(
            row.store,
            f"{row.entities:,}",
            f"{row.first_us:.1f} µs",
            f"{row.last_us:.1f} µs",
            f"{row.longest_ms:.0f} ms",
            f"{row.memory_mb:,.0f} MB",
        )
    console.print(table)


def growth_verdicts(results: list[Growth]) -> list[Verdict]:
    pauses = [
        Verdict(
            f"growth, {row.store}: no pause of more than {LONGEST_MS:.0f} ms",
            f"{row.longest_ms:.0f} ms",
            row.longest_ms <= LONGEST_MS,
        )
        for row in results
        if row.store == "memory"
    ]
    return pauses + [
        Verdict(
            f"growth, {row.store}: the last of {row.entities:,} as fast as the first, within 20 %",
            f"{row.ratio:.2f} ×",
            row.ratio <= ALLOWED,
        )
        for row in results
    ]


class Meter:
    """Times parts of a run, each in samples."""

    def __init__(self, store: str, entities: int) -> None:
        self._store, self._entities = store, entities
        self._before_mb = _memory_mb()
        self._parts: list[float] = []
        self._beside: list[float] = []
        self._apart_s = 0.0
        self.longest_s = 0.0

    def samples(self) -> Iterator[range]:
        """Iterate over all entities in samples; a part is the median of its samples."""
        size = max(1, self._entities // PARTS // SAMPLES)
        for part in range(PARTS):
            times = []
            for sample in range(SAMPLES):
                first = (part * SAMPLES + sample) * size
                began = time.process_time()
                self._apart_s = 0.0
                yield range(first, first + size)
                times.append((time.process_time() - began - self._apart_s) / size)
            self._parts.append(median(times))

    @property
    def is_in_last_part(self) -> bool:
        return len(self._parts) == PARTS - 1

    @contextmanager
    def beside(self, size: int) -> Iterator[None]:
        """Time as many acquires on a store that the last part is compared with."""
        began = time.process_time()
        yield
        self._apart_s = time.process_time() - began
        self._beside.append(self._apart_s / size)

    def result(self) -> Growth:
        first = median(self._beside) if self._beside else self._parts[0]
        last, longest_ms = self._parts[-1], self.longest_s * 1e3
        grown_mb = _memory_mb() - self._before_mb
        return Growth(self._store, self._entities, first * 1e6, last * 1e6, longest_ms, grown_mb)


def _memory_mb() -> float:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * PAGE_BYTES / 1e6


def _memory(meter: Meter) -> None:
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults(LIMITS)
        limiter = SyncRateLimiter(repository)
        _warm_up(limiter)
        for numbers in meter.samples():
            for number in numbers:
                began = time.thread_time()
                with limiter.acquire(f"user-{number}", "api", AMOUNTS):
                    pass
                meter.longest_s = max(meter.longest_s, time.thread_time() - began)


def _warm_up(limiter: SyncRateLimiter) -> None:
    for number in range(1000):
        with limiter.acquire(f"first-{number}", "api", AMOUNTS):
            pass


def _sqlite(meter: Meter) -> None:
    asyncio.run(_sqlite_files(meter, LIMITS, 1000))


def _sqlite_expiring(meter: Meter) -> None:
    """Buckets that are deleted as fast as new ones are made; their usage stays."""
    asyncio.run(_sqlite_files(meter, EXPIRING, EXPIRING_FIRST))


async def _sqlite_files(meter: Meter, limits: list[Limit], untimed: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        large, empty = await _limiter(stack, folder / "large.db", limits), None
        await _visit_together(large, range(-untimed, 0), meter)
        meter.longest_s = 0.0
        for numbers in meter.samples():
            await _visit_together(large, numbers, meter)
            if meter.is_in_last_part:
                if empty is None:  # the sample is one of twenty: the median leaves it out
                    empty = await _limiter(stack, folder / "empty.db", limits)
                    await _visit_together(empty, range(-untimed, 0), meter)
                with meter.beside(len(numbers)):
                    await _visit_together(empty, numbers, meter)


async def _limiter(stack: AsyncExitStack, path: Path, limits: list[Limit]) -> RateLimiter:
    # On a machine with other work a disk may take seconds; that is measured, and is no outage.
    opening = Repository.open(url=f"sqlite:///{path}", request_timeout=60)
    repository = await stack.enter_async_context(await opening)
    await repository.set_system_defaults(limits)
    return RateLimiter(repository)


async def _visit_together(limiter: RateLimiter, numbers: range, meter: Meter) -> None:
    async def visit(mine: range) -> None:
        for number in mine:
            began = time.perf_counter()
            async with limiter.acquire(f"user-{number}", "api", AMOUNTS):
                pass
            meter.longest_s = max(meter.longest_s, time.perf_counter() - began)

    await asyncio.gather(*(visit(numbers[task::TASKS]) for task in range(TASKS)))


def _bucket_cache(meter: Meter) -> None:
    """The DynamoDB client's cache of buckets, which is bounded."""
    from zae_limiter.admission.image import BucketImage, LimitState, Rate
    from zae_limiter.items.buckets.cache import BucketCache
    from zae_limiter.items.stored.bucket import StoredBucket
    from zae_limiter.items.stored.keys import BucketId

    now_ms, cache, rate = time.time_ns() // 1_000_000, BucketCache(), Rate.of(LIMITS[0])
    for numbers in meter.samples():
        for number in numbers:
            image = BucketImage({"rpm": LimitState(number, rate)}, 1, None, now_ms // 3_600_000)
            bucket = StoredBucket(image, "")
            began = time.thread_time()
            cache.store(BucketId("ns", f"user-{number}", "api").shard(0), bucket, now_ms)
            meter.longest_s = max(meter.longest_s, time.thread_time() - began)


def _config_cache(meter: Meter) -> None:
    """The cache of resolved limits, which is bounded, alone: without a charge."""
    with SyncRepository.open(url="memory://") as repository:
        repository.set_system_defaults(LIMITS)
        limiter = SyncRateLimiter(repository)
        for numbers in meter.samples():
            for number in numbers:
                began = time.thread_time()
                limiter.available(f"user-{number}", "api")
                meter.longest_s = max(meter.longest_s, time.thread_time() - began)


STORES: dict[str, Callable[[Meter], None]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite, expiring": _sqlite_expiring,
    "bucket cache": _bucket_cache,
    "config cache": _config_cache,
}


if __name__ == "__main__":
    meter = Meter(sys.argv[1], int(sys.argv[2]))
    STORES[sys.argv[1]](meter)
    print(json.dumps(meter.result()))

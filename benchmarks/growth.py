"""Growth: stores and caches with more and more entities, each in a process of its own.

    python -m benchmarks --only growth --entities 200000

Every tenth of the entities is timed by the processor's time of the process, which other programs
on the machine change little; so is the longest pause, where one thread does everything. A pause is
promised of the memory engine only. The longest one of the cache of buckets is a full garbage
collection, to which 50,000 buckets add 50 to 75 ms. Tasks that share transactions of SQLite wait
for each other and for the disk: their longest wait is by the clock on the wall.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.verdict import Verdict
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

PARTS = 10
SAMPLES = 20  # of one part: their median leaves out what happens rarely
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
    """What the first and the last tenth of the entities cost."""

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
    table = Table("growth", "entities", "first tenth", "last tenth", "longest", "memory")
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
        self.longest_s = 0.0

    def samples(self) -> Iterator[range]:
        """Iterate over all entities in samples; a part is the median of its samples."""
        size = max(1, self._entities // PARTS // SAMPLES)
        for part in range(PARTS):
            times = []
            for sample in range(SAMPLES):
                first = (part * SAMPLES + sample) * size
                began = time.process_time()
                yield range(first, first + size)
                times.append((time.process_time() - began) / size)
            self._parts.append(median(times))

    def result(self) -> Growth:
        first, last = (seconds * 1e6 for seconds in (self._parts[0], self._parts[-1]))
        grown_mb = _memory_mb() - self._before_mb
        return Growth(self._store, self._entities, first, last, self.longest_s * 1e3, grown_mb)


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
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_sqlite_tasks(meter, f"sqlite:///{folder}/limits.db", LIMITS, 1000))


def _sqlite_expiring(meter: Meter) -> None:
    """Buckets that are deleted as fast as new ones are made; their usage stays."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/limits.db"
        asyncio.run(_sqlite_tasks(meter, url, EXPIRING, EXPIRING_FIRST))


async def _sqlite_tasks(meter: Meter, url: str, limits: list[Limit], untimed: int) -> None:
    # On a machine with other work a disk may take seconds; that is measured, and is no outage.
    opening = Repository.open(url=url, request_timeout=60)
    async with await opening as repository:
        await repository.set_system_defaults(limits)
        limiter = RateLimiter(repository)

        async def visit(numbers: range) -> None:
            for number in numbers:
                began = time.perf_counter()
                async with limiter.acquire(f"user-{number}", "api", AMOUNTS):
                    pass
                meter.longest_s = max(meter.longest_s, time.perf_counter() - began)

        async def visit_together(numbers: range) -> None:
            await asyncio.gather(*(visit(numbers[task::TASKS]) for task in range(TASKS)))

        await visit_together(range(-untimed, 0))
        meter.longest_s = 0.0
        for numbers in meter.samples():
            await visit_together(numbers)


def _bucket_cache(meter: Meter) -> None:
    """The DynamoDB client's cache of buckets, which is bounded."""
    from zae_limiter.admission.image import BucketImage, LimitState, Rate
    from zae_limiter.dynamodb.buckets.cache import BucketCache
    from zae_limiter.dynamodb.items.bucket import BucketId, StoredBucket

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

"""One sample: a fresh store, a warm-up, then a counted number of acquires."""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import Acquire, AsyncAcquire, Case, Setting, Shape

# The warm-up doubles until its last step took this part of a sample; its rate sizes the sample.
LAST_WARM_UP = 0.25


class Sample(NamedTuple):
    """``cpu_s`` is that of all threads and of children that have ended.

    Waits are those of single acquires; only taken where a server is asked, since a look at the
    clock is no small part of an acquire in memory.
    """

    acquires: int
    wall_s: float
    cpu_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def wall_us(self) -> float:
        return self.wall_s / self.acquires * 1e6

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.acquires * 1e6

    @property
    def per_second(self) -> float:
        return self.acquires / self.wall_s


def take_sample(case: Case, seconds: float) -> Sample:
    """Measure a case for about ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="zael-bench-") as folder:
        setting = Setting(keys_of(case.shape), Path(folder))
        if case.shape.tasks:
            return asyncio.run(_sample_async(case, setting, seconds))
        return _sample_sync(case, setting, seconds)


def with_waits(sample: Sample, waits_s: list[float]) -> Sample:
    """The same with what single acquires have waited."""
    if not waits_s:
        return sample
    return sample._replace(
        p50_ms=percentile(waits_s, 50) * 1000, p99_ms=percentile(waits_s, 99) * 1000
    )


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def keys_of(shape: Shape) -> tuple[str, ...]:
    return tuple(f"user-{number}" for number in range(shape.keys))


def cpu_seconds() -> float:
    """Of this process, its threads and the children it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# --- sync


def _sample_sync(case: Case, setting: Setting, seconds: float) -> Sample:
    with case.contestant.open(setting) as acquire:
        for key in setting.keys:
            _check(case, acquire(key))

        waits: list[float] = []
        measured = _timed(acquire, waits) if case.contestant.remote else acquire

        def run(count: int) -> Sample:
            waits.clear()
            wall, cpu = time.perf_counter(), cpu_seconds()
            _drive_threads(measured, setting.keys, count, case.shape.threads)
            sample = Sample(count, time.perf_counter() - wall, cpu_seconds() - cpu)
            return with_waits(sample, waits)

        run(case.shape.threads)  # connects, which is no measure of what follows
        warm = run(case.shape.threads)
        while warm.wall_s < seconds * LAST_WARM_UP:
            warm = run(2 * warm.acquires)
        with _quiet_heap():
            sample = run(_count_for(seconds, warm, case.shape.threads))
        _check(case, acquire(setting.keys[0]))
    return sample


def _drive_threads(acquire: Acquire, keys: Iterable[str], count: int, threads: int) -> None:
    if threads == 1:
        return _drive(acquire, keys, count)
    work = (acquire, keys, count // threads)
    workers = [threading.Thread(target=_drive, args=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return None


def _timed(acquire: Acquire, waits_s: list[float]) -> Acquire:
    def timed(key: str) -> bool:
        started = time.perf_counter()
        granted = acquire(key)
        waits_s.append(time.perf_counter() - started)
        return granted

    return timed


def _drive(acquire: Acquire, keys: Iterable[str], count: int) -> None:
    for key in islice(cycle(keys), count):
        acquire(key)


# --- async


async def _sample_async(case: Case, setting: Setting, seconds: float) -> Sample:
    assert case.contestant.open_async is not None, f"{case.id} has no async form"
    async with case.contestant.open_async(setting) as acquire:
        waits: list[float] = []
        measured = _timed_async(acquire, waits) if case.contestant.remote else acquire

        async def first(key: str) -> bool:
            _check(case, await acquire(key))
            return True

        async def run(count: int) -> Sample:
            waits.clear()
            wall, cpu = time.perf_counter(), cpu_seconds()
            await drive_tasks(measured, setting.keys, count, case.shape.tasks)
            sample = Sample(count, time.perf_counter() - wall, cpu_seconds() - cpu)
            return with_waits(sample, waits)

        await drive_tasks(first, setting.keys, len(setting.keys), case.shape.tasks)
        await run(case.shape.tasks)  # connects, which is no measure of what follows
        warm = await run(case.shape.tasks)
        while warm.wall_s < seconds * LAST_WARM_UP:
            warm = await run(2 * warm.acquires)
        with _quiet_heap():
            sample = await run(_count_for(seconds, warm, case.shape.tasks))
        _check(case, await acquire(setting.keys[0]))
    return sample


def _timed_async(acquire: AsyncAcquire, waits_s: list[float]) -> AsyncAcquire:
    async def timed(key: str) -> bool:
        started = time.perf_counter()
        granted = await acquire(key)
        waits_s.append(time.perf_counter() - started)
        return granted

    return timed


async def drive_tasks(acquire: AsyncAcquire, keys: Iterable[str], count: int, tasks: int) -> None:
    """Share ``count`` acquires among tasks; each takes the next key."""
    todo = islice(cycle(keys), count)

    async def work() -> None:
        for key in todo:
            await acquire(key)

    await asyncio.gather(*(work() for _ in range(tasks)))


# --- both


def _count_for(seconds: float, warm: Sample, parts: int) -> int:
    """As many acquires as take ``seconds``, in whole shares for all tasks or threads."""
    return max(1, round(seconds * warm.per_second / parts)) * parts


def _check(case: Case, granted: bool) -> None:
    if bool(granted) is not case.contestant.grants:
        raise AssertionError(f"{case.id}: answered {granted}, so this would measure another thing")


@contextmanager
def _quiet_heap() -> Iterator[None]:
    """Collect and set aside what is there; garbage made from here on is the contestant's own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

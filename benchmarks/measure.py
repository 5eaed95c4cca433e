"""One sample each of cases that are compared: fresh stores, a warm-up, then counted acquires.

They are open at the same time and measured in slices, one after the other and round again, so that
whatever else happens on the machine falls on all of them alike.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.cases import Acquire, AsyncAcquire, Case, Setting, Shape

# The warm-up doubles until its last step took this part of a sample; its rate sizes the sample.
LAST_WARM_UP = 0.25
SLICES = 4  # of a sample

T = TypeVar("T")


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


def take_samples(cases: Sequence[Case], seconds: float) -> list[Sample]:
    """Measure cases of one shape, each for about ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="zael-bench-") as folder:
        settings = []
        for number, case in enumerate(cases):
            place = Path(folder, str(number))
            place.mkdir()
            settings.append(Setting(keys_of(case.shape), place))
        if cases[0].shape.tasks:
            return asyncio.run(_samples_async(cases, settings, seconds))
        return _samples_sync(cases, settings, seconds)


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


class Course:
    """A case that is being measured: its slices so far, and the waits of single acquires."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.waits_s: list[float] = []
        self.count = 0  # of acquires in a slice
        self._slices: list[Sample] = []

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Around so many acquires."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        yield
        self._slices.append(Sample(count, time.perf_counter() - wall, cpu_seconds() - cpu))

    def is_warm(self, seconds: float) -> bool:
        """Whether a warm-up took long enough; then it sizes the slices, and is forgotten."""
        warm = self._slices[-1]
        if warm.wall_s < seconds * LAST_WARM_UP:
            return False
        parts = max(self.case.shape.tasks, self.case.shape.threads)
        self.count = max(1, round(seconds / SLICES * warm.per_second / parts)) * parts
        self._slices.clear()
        self.waits_s.clear()
        return True

    def sample(self) -> Sample:
        acquires, wall_s, cpu_s, *_ = (sum(each) for each in zip(*self._slices, strict=True))
        sample = Sample(int(acquires), wall_s, cpu_s)
        if not self.waits_s:
            return sample
        p50_ms, p99_ms = (percentile(self.waits_s, percent) * 1000 for percent in (50, 99))
        return sample._replace(p50_ms=p50_ms, p99_ms=p99_ms)

    def check(self, granted: bool) -> None:
        if bool(granted) is not self.case.contestant.grants:
            raise AssertionError(f"{self.case.id}: answered {granted}, which is not what it is for")


def in_slices(courses: Sequence[T]) -> Iterator[T]:
    """Who comes next, until all have had their slices; every other time the other way round."""
    for number in range(SLICES):
        yield from courses[::-1] if number % 2 else courses


# --- sync

Run = Callable[[int], None]


def _samples_sync(
    cases: Sequence[Case], settings: Sequence[Setting], seconds: float
) -> list[Sample]:
    with ExitStack() as stack:
        opened = [
            stack.enter_context(_opened(Course(case), setting, seconds))
            for case, setting in zip(cases, settings, strict=True)
        ]
        with _quiet_heap():
            for course, run in in_slices(opened):
                run(course.count)
        return [course.sample() for course, _ in opened]


@contextmanager
def _opened(course: Course, setting: Setting, seconds: float) -> Iterator[tuple[Course, Run]]:
    """Yield a warm contestant."""
    contestant, threads = course.case.contestant, course.case.shape.threads
    with contestant.open(setting) as acquire:
        for key in setting.keys:
            course.check(acquire(key))
        measured = _timed(acquire, course.waits_s) if contestant.remote else acquire

        def run(count: int) -> None:
            with course.timed(count):
                _drive_threads(measured, setting.keys, count, threads)

        count = threads
        run(count)  # connects, which would spoil the measurement
        run(count)
        while not course.is_warm(seconds):
            count *= 2
            run(count)
        yield course, run
        course.check(acquire(setting.keys[0]))


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


ARun = Callable[[int], Awaitable[None]]


async def _samples_async(
    cases: Sequence[Case], settings: Sequence[Setting], seconds: float
) -> list[Sample]:
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(_opened_async(Course(case), setting, seconds))
            for case, setting in zip(cases, settings, strict=True)
        ]
        with _quiet_heap():
            for course, run in in_slices(opened):
                await run(course.count)
        return [course.sample() for course, _ in opened]


@asynccontextmanager
async def _opened_async(
    course: Course, setting: Setting, seconds: float
) -> AsyncIterator[tuple[Course, ARun]]:
    """Yield a warm contestant."""
    contestant, tasks = course.case.contestant, course.case.shape.tasks
    assert contestant.open_async is not None, f"{course.case.id} has no async form"
    async with contestant.open_async(setting) as acquire:
        measured = _timed_async(acquire, course.waits_s) if contestant.remote else acquire

        async def first(key: str) -> bool:
            course.check(await acquire(key))
            return True

        async def run(count: int) -> None:
            with course.timed(count):
                await drive_tasks(measured, setting.keys, count, tasks)

        await drive_tasks(first, setting.keys, len(setting.keys), tasks)
        count = tasks
        await run(count)  # connects, which would spoil the measurement
        await run(count)
        while not course.is_warm(seconds):
            count *= 2
            await run(count)
        yield course, run
        course.check(await acquire(setting.keys[0]))


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


@contextmanager
def _quiet_heap() -> Iterator[None]:
    """Collect garbage and freeze the rest, so that later garbage is the contestant's own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

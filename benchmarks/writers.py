"""Several processes that write to one store as fast as they can."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import Contestant, Open, Setting

WARM_UP_ACQUIRES = 200
START_TIMEOUT_S = 60


class Writer(NamedTuple):
    """The figures of one process."""

    acquires: int
    worst_wait_s: float
    wall_s: float
    cpu_s: float


class WritersRun(NamedTuple):
    """All processes together."""

    writers: tuple[Writer, ...]

    @property
    def worst_wait_ms(self) -> float:
        return max(writer.worst_wait_s for writer in self.writers) * 1000

    @property
    def fairness(self) -> float:
        """Acquires of the slowest process for one of the fastest."""
        counts = [writer.acquires for writer in self.writers]
        return min(counts) / max(counts)

    @property
    def per_second(self) -> float:
        return sum(writer.acquires / writer.wall_s for writer in self.writers)

    @property
    def cpu_us(self) -> float:
        spent = sum(writer.cpu_s for writer in self.writers)
        return spent / sum(writer.acquires for writer in self.writers) * 1e6


def run_writers(contestant: Contestant, seconds: float) -> WritersRun:
    """All on the same key, each with its own connection."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(contestant.writers), context.Queue()
    with tempfile.TemporaryDirectory(prefix="zael-bench-") as folder:
        setting = Setting(("user-0",), Path(folder))
        with contestant.open(setting):  # makes the store before they race for it
            processes = [
                context.Process(
                    target=_write, args=(contestant.open, setting, seconds, barrier, results)
                )
                for _ in range(contestant.writers)
            ]
            for process in processes:
                process.start()
            found = [results.get(timeout=START_TIMEOUT_S + seconds) for _ in processes]
            for process in processes:
                process.join()
    return WritersRun(tuple(found))


def _write(
    open_: Open, setting: Setting, seconds: float, barrier: Barrier, results: Queue[Writer]
) -> None:
    key, clock = setting.keys[0], time.perf_counter
    with open_(setting) as acquire:
        for _ in range(WARM_UP_ACQUIRES):
            acquire(key)
        barrier.wait(START_TIMEOUT_S)
        acquires, worst, cpu = 0, 0.0, time.process_time()
        now = started = clock()
        while now - started < seconds:
            before = now
            acquire(key)
            now = clock()
            acquires += 1
            worst = max(worst, now - before)
        results.put(Writer(acquires, worst, now - started, time.process_time() - cpu))
        barrier.wait(START_TIMEOUT_S)  # closing folds the log into the file: not beside a writer

"""The requirements, and whether each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.cases import ASYNC, ASYNC_TASKS, SYNC, SYNC_MANY
from benchmarks.imports import HEAVY, heavy_modules
from benchmarks.runner import Results
from benchmarks.server_requirements import server_verdicts
from benchmarks.verdict import Verdict, ratio_verdict, unknown

MEMORY, SQLITE = "zae-limiter memory", "zae-limiter sqlite"
LIMITS = "limits fixed window"
PYRATE = "pyrate-limiter sqlite"


def verdicts(results: Results) -> list[Verdict]:
    """Return every requirement, in the order of the table."""
    return [
        *_memory(results),
        *_sqlite(results),
        *_writers(results),
        *server_verdicts(results),
        *_imports(results),
    ]


def _memory(results: Results) -> Iterator[Verdict]:
    for shape in (SYNC, SYNC_MANY):
        yield ratio_verdict(
            results,
            f"memory, {shape.label}: at most 2.5 × two hits of limits fixed window",
            results.find(MEMORY, shape),
            results.find(LIMITS, shape),
            lambda ratio: ratio <= 2.5,
        )
    yield ratio_verdict(
        results,
        "memory, async with 1 task: at most 1.5 × sync",
        results.find(MEMORY, ASYNC),
        results.find(MEMORY, SYNC),
        lambda ratio: ratio <= 1.5,
    )


def _sqlite(results: Results) -> Iterator[Verdict]:
    for shape in (SYNC, ASYNC_TASKS):
        case = results.find(SQLITE, shape)
        requirement = f"sqlite, {shape.label}: at least 10,000 acquires/s"
        if case is None:
            yield unknown(requirement)
        else:
            rate = results.per_second(case)
            yield Verdict(requirement, f"{rate:,.0f}/s", rate >= 10_000)
    yield ratio_verdict(
        results,
        f"sqlite, {SYNC.label}: at least 10 × as fast as {PYRATE}",
        results.find(PYRATE, SYNC),
        results.find(SQLITE, SYNC),
        lambda ratio: ratio >= 10,
    )


def _writers(results: Results) -> Iterator[Verdict]:
    runs = results.writers.get(SQLITE, [])
    wait, fair = (
        "sqlite, four writing processes: worst wait at most 500 ms",
        "sqlite, four writing processes: slowest at least 70 % of the fastest",
    )
    if not runs:
        yield from (unknown(wait), unknown(fair))
        return
    worst = max(run.worst_wait_ms for run in runs)
    yield Verdict(wait, f"{worst:.0f} ms", worst <= 500)
    share = median(run.fairness for run in runs)
    yield Verdict(fair, f"{share:.0%}", share >= 0.7)


def _imports(results: Results) -> Iterator[Verdict]:
    cost = "import: at most 150 ms on top of the interpreter"
    light = f"import: brings neither {' nor '.join(HEAVY)}"
    if not results.imports:
        yield from (unknown(cost), unknown(light))
        return
    added = median(run.added_ms for run in results.imports)
    yield Verdict(cost, f"{added:.0f} ms", added <= 150)
    heavy = heavy_modules()
    yield Verdict(light, ", ".join(heavy) or "neither", not heavy)

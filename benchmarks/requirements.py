"""What must hold, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from benchmarks.cases import ASYNC, ASYNC_TASKS, SYNC, SYNC_MANY, Case
from benchmarks.imports import HEAVY, heavy_modules
from benchmarks.runner import Results

MEMORY, SQLITE = "zae-limiter memory", "zae-limiter sqlite"
LIMITS = "limits fixed window"
PYRATE = "pyrate-limiter sqlite"


class Verdict(NamedTuple):
    """One requirement; ``holds`` is None where it was not measured."""

    requirement: str
    measured: str
    holds: bool | None


def verdicts(results: Results) -> list[Verdict]:
    """Every requirement, in the order of the table."""
    return [*_memory(results), *_sqlite(results), *_writers(results), *_imports(results)]


def _memory(results: Results) -> Iterator[Verdict]:
    for shape in (SYNC, SYNC_MANY):
        yield _ratio(
            results,
            f"memory, {shape.label}: at most 2.5 × two hits of limits fixed window",
            results.find(MEMORY, shape),
            results.find(LIMITS, shape),
            lambda ratio: ratio <= 2.5,
        )
    yield _ratio(
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
            yield _unknown(requirement)
        else:
            rate = results.per_second(case)
            yield Verdict(requirement, f"{rate:,.0f}/s", rate >= 10_000)
    yield _ratio(
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
        yield from (_unknown(wait), _unknown(fair))
        return
    worst = max(run.worst_wait_ms for run in runs)
    yield Verdict(wait, f"{worst:.0f} ms", worst <= 500)
    share = median(run.fairness for run in runs)
    yield Verdict(fair, f"{share:.0%}", share >= 0.7)


def _imports(results: Results) -> Iterator[Verdict]:
    cost = "import: at most 100 ms on top of the interpreter"
    light = f"import: brings neither {' nor '.join(HEAVY)}"
    if not results.imports:
        yield from (_unknown(cost), _unknown(light))
        return
    added = median(run.added_ms for run in results.imports)
    yield Verdict(cost, f"{added:.0f} ms", added <= 100)
    heavy = heavy_modules()
    yield Verdict(light, ", ".join(heavy) or "neither", not heavy)


def _ratio(
    results: Results,
    requirement: str,
    case: Case | None,
    other: Case | None,
    fits: Callable[[float], bool],
) -> Verdict:
    if case is None or other is None:
        return _unknown(requirement)
    ratio = results.ratio(case, other)
    return Verdict(requirement, f"{ratio:.2f} ×", fits(ratio))


def _unknown(requirement: str) -> Verdict:
    return Verdict(requirement, "not measured", None)

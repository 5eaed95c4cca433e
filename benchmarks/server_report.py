"""The measurements on servers, as rows of tables."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.arrivals import summary
from benchmarks.cases import Case
from benchmarks.runner import Results

CASE_COLUMNS = ("", "acquires/s", "CPU µs", "p50 ms", "p99 ms", "× rate", "CPU ÷", "spread CPU µs")
CROWD_COLUMNS = (
    "",
    "acquires/s",
    "p50 ms",
    "p99 ms",
    "rejected",
    "writes per acquire",
    "of them refused",
)
ARRIVAL_COLUMNS = (
    "",
    "shared p50 ms",
    "apart p50 ms",
    "ratio",
    "shared p99 ms",
    "apart p99 ms",
    "writes per acquire",
)


def case_cells(results: Results, case: Case) -> tuple[str, ...]:
    """One line; the last but one says how many times as much CPU the reference takes."""
    reference = results.reference(case)
    cpu = [sample.cpu_us for sample in results.samples[case.id]]
    rate = cheaper = ""
    if reference is not None:
        rate = f"{1 / results.ratio(case, reference):.2f}"
        cheaper = f"{results.ratio(reference, case, 'cpu_us'):.2f}"
    return (
        case.contestant.name,
        f"{results.per_second(case):,.0f}",
        f"{results.cpu_us(case):,.1f}",
        f"{results.p50_ms(case):,.2f}",
        f"{results.p99_ms(case):,.2f}",
        rate,
        cheaper,
        f"{min(cpu):,.0f}–{max(cpu):,.0f}",
    )


def crowd_rows(results: Results) -> Iterator[tuple[str, ...]]:
    for name, run in results.crowds.items():
        yield (
            name,
            f"{run.per_second:,.0f}",
            f"{run.p50_ms:,.1f}",
            f"{run.p99_ms:,.1f}",
            f"{run.rejected:,}",
            f"{run.writes_per_acquire:.3f}",
            f"{run.refused_per_acquire:.3f}",
        )


def arrival_rows(results: Results) -> Iterator[tuple[str, ...]]:
    for link_ms, runs in results.arrivals.items():
        found = summary(runs)
        yield (
            f"link of {link_ms} ms" if link_ms else "no link",
            f"{found.shared_p50_ms:,.2f}",
            f"{found.apart_p50_ms:,.2f}",
            f"{found.ratio:.2f}",
            f"{found.shared_p99_ms:,.2f}",
            f"{found.apart_p99_ms:,.2f}",
            f"{found.writes_per_acquire:.2f}",
        )

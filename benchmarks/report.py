"""The results as rows, as tables on the terminal and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import Case
from benchmarks.runner import Results
from benchmarks.server_report import (
    ARRIVAL_COLUMNS,
    CASE_COLUMNS,
    CROWD_COLUMNS,
    arrival_rows,
    case_cells,
    crowd_rows,
)
from benchmarks.verdict import Verdict

COLUMNS = ("", "µs", "CPU µs", "acquires/s", "spread", "× reference")
WRITER_COLUMNS = ("", "total acquires/s", "CPU µs", "worst wait ms", "slowest/fastest")


def embedded_cells(results: Results, case: Case) -> tuple[str, ...]:
    """One line, without the server's figures."""
    reference = results.reference(case)
    walls = [sample.wall_us for sample in results.samples[case.id]]
    return (
        case.contestant.name,
        f"{results.wall_us(case):,.1f}",
        f"{results.cpu_us(case):,.1f}",
        f"{results.per_second(case):,.0f}",
        f"{min(walls):,.1f}–{max(walls):,.1f}",
        "" if reference is None else _ratio_cell(results.ratio(case, reference)),
    )


def writer_rows(results: Results) -> Iterator[tuple[str, ...]]:
    """Medians of the runs, but the worst wait of all of them."""
    for name, runs in results.writers.items():
        yield (
            f"{name}, {len(runs[0].writers)} processes",
            f"{median(run.per_second for run in runs):,.0f}",
            f"{median(run.cpu_us for run in runs):,.1f}",
            f"{max(run.worst_wait_ms for run in runs):,.0f}",
            f"{median(run.fairness for run in runs):.0%}",
        )


def environment() -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "date": f"{now:%Y-%m-%d}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "sqlite": sqlite3.sqlite_version,
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def print_report(console: Console, results: Results, found: list[Verdict]) -> None:
    print_embedded(console, results)
    print_servers(console, results)
    console.print(verdict_table(found))


def print_embedded(console: Console, results: Results) -> None:
    """Return the tables of the engines that need no server."""
    cases = [case for case in results.cases if not case.contestant.remote]
    if cases:
        title = "medians per acquire"
        console.print(_case_table(title, COLUMNS, results, cases, embedded_cells))
    _print_rows(console, "writing at once", WRITER_COLUMNS, writer_rows(results))


def print_servers(console: Console, results: Results) -> None:
    """Return the tables of DynamoDB and of the servers beside it."""
    cases = [case for case in results.cases if case.contestant.remote]
    if cases:
        title = "\non servers of this machine, medians per acquire"
        console.print(_case_table(title, CASE_COLUMNS, results, cases, case_cells))
    _print_rows(console, "one bucket, many tasks", CROWD_COLUMNS, crowd_rows(results))
    _print_rows(console, "one bucket, 100 arrivals/s", ARRIVAL_COLUMNS, arrival_rows(results))


def write_json(path: Path, results: Results, found: list[Verdict]) -> None:
    """Every sample, so that other figures can be drawn from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == ".bench":
        (path.parent / ".gitignore").write_text("*\n")
    path.write_text(json.dumps(_document(results, found), indent=1, ensure_ascii=False) + "\n")


def _document(results: Results, found: list[Verdict]) -> dict[str, Any]:
    return {
        "environment": environment(),
        "cases": [
            {
                "id": case.id,
                "group": case.group,
                "wall_us": results.wall_us(case),
                "cpu_us": results.cpu_us(case),
                "per_second": results.per_second(case),
                "samples": [sample._asdict() for sample in results.samples[case.id]],
            }
            for case in results.cases
        ],
        "writers": {
            name: [[writer._asdict() for writer in run.writers] for run in runs]
            for name, runs in results.writers.items()
        },
        "imports": [run._asdict() for run in results.imports],
        "crowds": {name: run._asdict() for name, run in results.crowds.items()},
        "arrivals": {
            link_ms: [run._asdict() for run in runs] for link_ms, runs in results.arrivals.items()
        },
        "must_hold": [verdict._asdict() for verdict in found],
    }


def _case_table(
    title: str,
    columns: tuple[str, ...],
    results: Results,
    cases: list[Case],
    cells_of: Callable[[Results, Case], tuple[str, ...]],
) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    heading = ""
    for case in cases:
        if case.group != heading:
            heading = case.group
            table.add_row(f"[bold]{heading}")
        name, *figures = cells_of(results, case)
        table.add_row(f"  {name}", *figures)
    return table


def _print_rows(
    console: Console, title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> None:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left")
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        console.print(table)


def verdict_table(found: list[Verdict]) -> Table:
    table = Table(title="\nmust hold", title_justify="left", box=None, pad_edge=False)
    table.add_column("requirement")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("holds")
    marks = {True: "[green]yes", False: "[bold red]NO", None: "[dim]?"}
    for verdict in found:
        table.add_row(verdict.requirement, verdict.measured, marks[verdict.holds])
    return table


def _ratio_cell(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"

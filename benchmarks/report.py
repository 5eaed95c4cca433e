"""The results as rows, as tables on the terminal and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.requirements import Verdict
from benchmarks.runner import Results

COLUMNS = ("", "µs", "CPU µs", "acquires/s", "spread", "× reference")
WRITER_COLUMNS = ("", "total acquires/s", "CPU µs", "worst wait ms", "slowest/fastest")


class Row(NamedTuple):
    """One case, as text; ``group`` is the heading it stands under."""

    group: str
    cells: tuple[str, ...]


def case_rows(results: Results) -> Iterator[Row]:
    for case in results.cases:
        reference = results.reference(case)
        walls = [sample.wall_us for sample in results.samples[case.id]]
        yield Row(
            case.group,
            (
                case.contestant.name,
                f"{results.wall_us(case):,.1f}",
                f"{results.cpu_us(case):,.1f}",
                f"{results.per_second(case):,.0f}",
                f"{min(walls):,.1f}–{max(walls):,.1f}",
                "" if reference is None else _ratio_cell(results.ratio(case, reference)),
            ),
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
    }


def print_report(console: Console, results: Results, found: list[Verdict]) -> None:
    if results.cases:
        console.print(_case_table(results))
    if results.writers:
        console.print(_plain_table("writing at once", WRITER_COLUMNS, writer_rows(results)))
    console.print(_verdict_table(found))


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
        "must_hold": [verdict._asdict() for verdict in found],
    }


def _case_table(results: Results) -> Table:
    table = Table(title="medians per acquire", title_justify="left", box=None, pad_edge=False)
    for position, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    heading = ""
    for row in case_rows(results):
        if row.group != heading:
            heading = row.group
            table.add_row(f"[bold]{heading}")
        table.add_row(f"  {row.cells[0]}", *row.cells[1:])
    return table


def _plain_table(title: str, columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _verdict_table(found: list[Verdict]) -> Table:
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

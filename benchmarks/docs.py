"""The tables in docs/benchmarks.md, between two marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.report import (
    COLUMNS,
    WRITER_COLUMNS,
    case_rows,
    environment,
    writer_rows,
)
from benchmarks.requirements import Verdict
from benchmarks.runner import Results

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: written by python -m benchmarks --write-docs -->", "<!-- /results -->"
MARKS = {True: "yes", False: "**no**", None: "?"}


def write_docs(results: Results, found: list[Verdict], page: Path = PAGE) -> None:
    """Replace what stands between the marks."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} lacks the line {BEGIN!r} or {END!r}; put both back")
    body = "\n".join(_body(results, found))
    page.write_text(f"{before}{begin}\n\n{body}\n\n{end}{after}")


def _body(results: Results, found: list[Verdict]) -> Iterator[str]:
    where = environment()
    yield (
        f"Measured on {where['date']} with Python {where['python']}, SQLite {where['sqlite']}, "
        f"{where['cpus']} CPUs, {where['system']}."
    )
    yield "\n### Must hold\n"
    yield from _table(
        ("requirement", "measured", "holds"),
        ((each.requirement, each.measured, MARKS[each.holds]) for each in found),
    )
    yield from _case_tables(results)
    if results.writers:
        yield "\n### Writing at once\n"
        yield from _table(WRITER_COLUMNS, writer_rows(results))


def _case_tables(results: Results) -> Iterator[str]:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in case_rows(results):
        groups.setdefault(row.group, []).append(row.cells)
    for group, rows in groups.items():
        yield f"\n### {group[0].upper()}{group[1:]}\n"
        yield from _table(COLUMNS, rows)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join(['---', *['---:'] * (len(columns) - 1)])}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"

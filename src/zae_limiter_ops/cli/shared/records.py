"""Records printed as a table, as JSON or as CSV, from one list of columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TextIO, TypeVar

from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.tables import print_hint, print_table
from zae_limiter_ops.reports.columns import (
    Column,
    cells_of,
    csv_heads_of,
    csv_row_of,
    json_of,
    titles_of,
)

T = TypeVar("T")

FORMULA_STARTS = ("=", "+", "-", "@")  # of cells that spreadsheets compute


def print_records(
    output: str,
    columns: Sequence[Column[T]],
    records: Sequence[T],
    *,
    name: str,
    if_none: str,
    **others: Any,
) -> None:
    """Print a table, or a hint if there are no records; as JSON, an object.

    The object has the records under ``name``, and ``others``.
    """
    if output == "json":
        print_json({name: [json_of(columns, record) for record in records], **others})
    elif records:
        print_columns(columns, records)
    else:
        print_hint(output, if_none)


def print_columns(
    columns: Sequence[Column[T]],
    records: Iterable[T],
    *,
    indent: int = 0,
    styles: dict[str, str] | None = None,
) -> None:
    """Print a table; ``styles`` colour cells by how they begin."""
    rows = (cells_of(columns, record) for record in records)
    print_table(titles_of(columns), rows, indent=indent, last_styles=styles)


def print_csv(
    columns: Sequence[Column[T]], records: Iterable[T], file: TextIO | None = None
) -> None:
    """Print CSV, or write it to a file: the heads, and a line for each record."""
    import csv

    writer = csv.writer(file or sys.stdout, lineterminator="\n")
    writer.writerow(csv_heads_of(columns))
    for record in records:
        writer.writerow([_neutral(value) for value in csv_row_of(columns, record)])


def _neutral(value: object) -> object:
    """Return a text that no spreadsheet computes: a text that looks like a formula gets a quote.

    Callers choose the ids of entities, so an id may be a formula. Numbers stay numbers, and money
    has all its digits.
    """
    if isinstance(value, Decimal):
        return f"{value:f}"
    is_formula = isinstance(value, str) and value.startswith(FORMULA_STARTS)
    return f"'{value}" if is_formula else value

"""Records printed as a table, as JSON or as CSV, from one list of columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from zae_limiter_ops.cli.shared.console import print_json
from zae_limiter_ops.cli.shared.tables import print_hint, print_table
from zae_limiter_ops.views.columns import Column, cells_of, json_of, titles_of, write_csv

T = TypeVar("T")


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


def print_csv(columns: Sequence[Column[T]], records: Iterable[T]) -> None:
    """Print the records as CSV."""
    write_csv(columns, records, sys.stdout)

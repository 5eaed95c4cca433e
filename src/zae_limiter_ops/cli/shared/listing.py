"""Listings of any length: read a page at a time and printed as the pages arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.tables import (
    print_hint,
    print_plain_rows,
    printable_cells,
    start_plain_table,
)
from zae_limiter_ops.views.columns import Column, cells_of, json_of, titles_of

T = TypeVar("T")
R = TypeVar("R")

FIRST_PAGE = 100  # small, so that the first rows are printed at once
PAGE = 1000  # large, so that long listings take few reads


class Pages(Generic[T]):
    """Iterates over the pages of a listing, up to ``limit`` records in all (None: no limit).

    After the last page ``next_cursor`` is the cursor of the next one; None at the end of the
    listing.
    """

    def __init__(
        self,
        fetch: Callable[[int, str | None], tuple[list[T], str | None]],
        limit: int | None,
        cursor: str | None,
    ) -> None:
        self._fetch = fetch
        self._limit = limit
        self.next_cursor = cursor
        self.record_count = 0

    @property
    def is_over(self) -> bool:
        """Whether the page that was read last is the last one."""
        return self.next_cursor is None or self.record_count == self._limit

    def __iter__(self) -> Iterator[list[T]]:
        is_over = False
        while not is_over:
            size = PAGE if self.record_count else FIRST_PAGE
            if self._limit is not None:
                size = min(size, self._limit - self.record_count)
            page, self.next_cursor = self._fetch(size, self.next_cursor)
            self.record_count += len(page)
            is_over = self.is_over
            if page:
                yield page


def print_pages(output: str, name: str, columns: Sequence[Column[T]], pages: Pages[T]) -> None:
    """Print a table, or JSON with the records under ``name``; a hint names the next page."""
    if output == "json":
        stream_json(name, pages, lambda record: json_of(columns, record))
        end_json(next_cursor=pages.next_cursor)
        return
    stream_table(columns, pages, lambda record: [record])
    print_next_page(output, pages)


def print_next_page(output: str, pages: Pages[T]) -> None:
    """Print the option that continues the listing, unless the listing is complete."""
    if pages.next_cursor is not None:
        print_hint(output, f"more: add --all, or --cursor {quoted(pages.next_cursor)}")


def stream_table(
    columns: Sequence[Column[R]],
    pages: Pages[T],
    rows: Callable[[T], Iterable[R]],
    *,
    styles: dict[str, str] | None = None,
) -> None:
    """Print a table of any length, a page at a time; ``rows`` returns the rows of a record.

    A single page is printed like any other table. The first of several pages decides how wide
    the columns are.
    """
    table = None
    for page in pages:
        records = [row for record in page for row in rows(record)]
        if table is None and pages.is_over:
            print_columns(columns, records, styles=styles)
            return
        cells = [printable_cells(cells_of(columns, record)) for record in records]
        if table is None:
            table = start_plain_table(titles_of(columns), cells)
        print_plain_rows(table, cells)


def stream_json(name: str, pages: Iterable[list[T]], to_json: Callable[[T], Any]) -> None:
    """Print ``{"name": [...]`` a page at a time; ``end_json`` closes the object."""
    click.echo(f'{{\n  "{name}": [', nl=False)
    first = True
    for page in pages:
        texts = [_indented(to_json(record)) for record in page]
        click.echo(("" if first else ",") + ",".join(texts), nl=False)
        first = False
    click.echo("]" if first else "\n  ]", nl=False)


def end_json(**fields: Any) -> None:
    """Print the fields after the list, and the end of the object."""
    for name, value in fields.items():
        click.echo(f',\n  "{name}": {json.dumps(value)}', nl=False)
    click.echo("\n}")


def _indented(value: Any) -> str:
    text = json.dumps(value, indent=2, allow_nan=False)
    return "\n    " + text.replace("\n", "\n    ")

"""Listings of any length: read a page at a time and printed as the pages arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import click

from zae_limiter_ops.cli.shared.tables import PlainTable, cells_of, print_table

T = TypeVar("T")

FIRST_PAGE = 100  # small, so that the first rows are printed at once
PAGE = 1000  # large, so that long listings take few reads


class Pages(Generic[T]):
    """Iterates over the pages of a listing, up to ``limit`` items in all (None: no limit).

    After the last page ``next_cursor`` is where to continue; None at the end of the listing.
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
        self.item_count = 0

    @property
    def is_over(self) -> bool:
        """Whether the page that was read last is the last one."""
        return self.next_cursor is None or self.item_count == self._limit

    def __iter__(self) -> Iterator[list[T]]:
        is_over = False
        while not is_over:
            size = PAGE if self.item_count else FIRST_PAGE
            if self._limit is not None:
                size = min(size, self._limit - self.item_count)
            page, self.next_cursor = self._fetch(size, self.next_cursor)
            self.item_count += len(page)
            is_over = self.is_over
            if page:
                yield page


def stream_table(
    heads: Sequence[str],
    pages: Pages[T],
    rows: Callable[[T], Iterable[Sequence[object]]],
    *,
    styles: dict[str, str] | None = None,
) -> None:
    """Print a table of any length, a page at a time; an item may have several rows.

    A single page is printed like any other table; of several pages the first one decides how
    wide the columns are.
    """
    table = None
    for page in pages:
        if table is None and pages.is_over:
            print_table(heads, (row for item in page for row in rows(item)), last_styles=styles)
            return
        cells = [cells_of(row) for item in page for row in rows(item)]
        if table is None:
            table = PlainTable(heads, cells)
            table.print_head()
        table.print_rows(cells)


def stream_json(name: str, pages: Iterable[list[T]], to_json: Callable[[T], Any]) -> None:
    """Print ``{"name": [...]`` a page at a time; ``end_json`` closes the object."""
    click.echo(f'{{\n  "{name}": [', nl=False)
    first = True
    for page in pages:
        texts = [_indented(to_json(item)) for item in page]
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

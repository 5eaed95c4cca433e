"""Columns of plain text: for pipes, and for tables that begin before their end is known."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import click

GAP = "  "
BATCH = 500


class Columns:
    """As wide as the rows need that are known at first. Heads in ``>`` are of numbers."""

    def __init__(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 0
    ) -> None:
        self._titles = [head.rstrip(">=") for head in heads]
        self._to_the_right = [head.endswith(">") for head in heads]
        columns = zip(self._titles, *rows, strict=True)
        self._widths = [max(map(width, column)) for column in columns]
        self._indent = " " * indent

    def print_head(self) -> None:
        total = sum(self._widths) + len(GAP) * (len(self._widths) - 1)
        click.echo("\n".join((self._line(self._titles), self._indent + _rule() * total)))

    def print_rows(self, rows: Iterable[Sequence[str]]) -> None:
        lines = (self._line(row) for row in rows)
        while batch := list(islice(lines, BATCH)):
            click.echo("\n".join(batch))

    def _line(self, cells: Sequence[str]) -> str:
        return (self._indent + GAP.join(self._aligned(cells))).rstrip()

    def _aligned(self, cells: Sequence[str]) -> Iterator[str]:
        for cell, wide, right in zip(cells, self._widths, self._to_the_right, strict=True):
            space = " " * (wide - width(cell))
            yield space + cell if right else cell + space


def width(text: str) -> int:
    """How many columns of a terminal it takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 1 + (east_asian_width(each) in "WF") for each in text)


def _rule() -> str:
    try:
        "─".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "-"
    return "─"

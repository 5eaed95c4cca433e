"""Tables, lines and fields on stdout, hints on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import make_console, print_json
from zae_limiter_ops.cli.shared.errors import folded
from zae_limiter_ops.cli.shared.formatting import format_rate, printable

if TYPE_CHECKING:
    from rich.table import Table

    from zae_limiter.models.limit import Limit

MAX_RICH_ROWS = 1000  # rich takes about a millisecond per row
MAX_UNFOLDED = 24  # columns of one word; a longer one is folded where the terminal is narrow
GAP = "  "
ROWS_PER_WRITE = 500  # enough to make writes cheap, few enough to see the table grow


def print_result(output: str, data: Any, *lines: str) -> None:
    """Print ``data`` if ``output`` is ``json``, otherwise ``lines``."""
    if output == "json":
        print_json(data)
    else:
        for line in lines:
            print_line(line)


def print_line(line: str, *, styles: dict[str, str] | None = None) -> None:
    """Print a line, on a terminal folded between words, with the words of ``styles`` coloured."""
    text = folded(printable(line).rstrip(), sys.stdout)
    if styles and _is_terminal() and not os.environ.get("NO_COLOR"):
        for word, colour in styles.items():
            text = text.replace(word, click.style(word, fg=colour), 1)
        click.echo(text, color=True)
        return
    click.echo(text)


def print_hint(output: str, line: str) -> None:
    """Print advice on stderr, where it is no part of the result; nothing for programs."""
    if output != "json":
        click.echo(folded(printable(line), sys.stderr), err=True)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one to a line, without those that are None."""
    shown = [(name, value) for name, value in fields if value is not None]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        print_line(f"{name.ljust(width)}  {value}")


def print_limits(limits: Iterable[Limit]) -> None:
    print_table(
        ("limit", "rate>", "burst>"),
        ((limit.name, format_rate(limit), f"{limit.capacity:,}") for limit in limits),
    )


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    indent: int = 0,
    last_styles: dict[str, str] | None = None,
) -> None:
    """Print aligned columns; nothing is cut off.

    A head that ends in ``>`` aligns its column to the right; one that ends in ``>`` or ``=``
    keeps its cells on one line. On a terminal other long cells wrap; in pipes, and in long
    tables, no line is wrapped.
    """
    cells = [cells_of(row) for row in rows]
    if len(cells) <= MAX_RICH_ROWS and _is_terminal():
        _print_rich_table(heads, cells, indent, last_styles or {})
        return
    table = PlainTable(heads, cells, indent)
    table.print_head()
    table.print_rows(cells)


def cells_of(row: Sequence[object]) -> list[str]:
    return [printable("" if cell is None else cell) for cell in row]


def _is_terminal() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _print_rich_table(
    heads: Sequence[str], cells: list[list[str]], indent: int, styles: dict[str, str]
) -> None:
    from rich.padding import Padding

    console = make_console()
    table = rich_table(heads, cells, styles, width=console.width - indent)
    console.print(Padding(table, (0, 0, 0, indent)))


def rich_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    styles: dict[str, str],
    *,
    width: int,
    caption: str | None = None,
) -> Table:
    """Return a table for a terminal of ``width``; ``styles`` colour cells by how they begin.

    Cells are folded between words. If the table is too wide even so, cells that were to stay on
    one line are folded, too, except for numbers.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), caption=caption
    )
    cells = [cells_of(row) for row in rows]
    columns = [[head.rstrip(">="), *column] for head, *column in zip(heads, *cells, strict=True)]
    kept = [head.endswith((">", "=")) for head in heads]
    least = [_least_width(*column) for column in zip(columns, kept, strict=True)]
    if sum(least) + len(heads) - 1 > width:
        kept = [head.endswith(">") for head in heads]
        least = [_least_width(*column) for column in zip(columns, kept, strict=True)]
    for head, no_wrap, min_width in zip(heads, kept, least, strict=True):
        table.add_column(
            head.rstrip(">="),
            justify="right" if head.endswith(">") else "left",
            overflow="fold",
            no_wrap=no_wrap,
            min_width=min_width,
        )
    for row in cells:
        table.add_row(*(Text(cell, style=_style(cell, styles)) for cell in row))
    return table


def _least_width(column: list[str], no_wrap: bool) -> int:
    """Return the width that a column needs if its cells are folded between words, or not at all."""
    if no_wrap:
        return max(map(text_width, column))
    words = (word for cell in column for word in cell.split())
    return min(max(map(text_width, words), default=0), MAX_UNFOLDED)


def _style(cell: str, styles: dict[str, str]) -> str:
    return next((style for start, style in styles.items() if cell.startswith(start)), "")


class PlainTable:
    """Columns of plain text, as wide as the rows given first need: later rows may stick out."""

    def __init__(
        self, heads: Sequence[str], first_rows: Sequence[Sequence[str]], indent: int = 0
    ) -> None:
        self._titles = [head.rstrip(">=") for head in heads]
        self._aligned_right = [head.endswith(">") for head in heads]
        columns = zip(self._titles, *first_rows, strict=True)
        self._widths = [max(map(text_width, column)) for column in columns]
        self._indent = " " * indent

    def print_head(self) -> None:
        total = sum(self._widths) + len(GAP) * (len(self._widths) - 1)
        click.echo("\n".join((self._line(self._titles), self._indent + _rule() * total)))

    def print_rows(self, rows: Iterable[Sequence[str]]) -> None:
        lines = (self._line(row) for row in rows)
        while batch := list(islice(lines, ROWS_PER_WRITE)):
            click.echo("\n".join(batch))

    def _line(self, cells: Sequence[str]) -> str:
        return (self._indent + GAP.join(self._padded(cells))).rstrip()

    def _padded(self, cells: Sequence[str]) -> Iterator[str]:
        for cell, width, right in zip(cells, self._widths, self._aligned_right, strict=True):
            space = " " * (width - text_width(cell))
            yield space + cell if right else cell + space


def text_width(text: str) -> int:
    """Return the number of terminal columns that ``text`` takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)


def _rule() -> str:
    try:
        "─".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "-"
    return "─"

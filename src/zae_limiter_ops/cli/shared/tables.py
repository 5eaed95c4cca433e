"""Lines, fields and tables on stdout, hints on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import make_console, print_json
from zae_limiter_ops.cli.shared.errors import folded
from zae_limiter_ops.views.columns import PlainTable, text_width
from zae_limiter_ops.views.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MAX_RICH_ROWS = 1000  # rich takes about a millisecond per row
# How cells are folded, from a wide terminal to a narrow one: titles with these ends keep their
# cells on one line, and words are folded if they have more characters than this.
FOLDINGS: tuple[tuple[tuple[str, ...], int], ...] = (((">", "="), 24), ((">",), 24), ((">",), 8))
RICH_GAP = 2  # between two columns
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
    """Print advice on stderr, where it is no part of the result. Programs get no advice."""
    if output != "json":
        click.echo(folded(printable(line), sys.stderr), err=True)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print a line with name and value for each field that is not None."""
    shown = [(name, value) for name, value in fields if value is not None]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        print_line(f"{name.ljust(width)}  {value}")


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    indent: int = 0,
    last_styles: dict[str, str] | None = None,
) -> None:
    """Print aligned columns; nothing is cut off.

    A title that ends in ``>`` aligns its column to the right; a title that ends in ``>`` or ``=``
    keeps its cells on one line. On a terminal other long cells wrap. In pipes, in long tables, and
    in tables that are too wide for the terminal, no cell wraps. ``last_styles`` colour cells by
    how they begin.
    """
    cells = [printable_cells(row) for row in rows]
    if len(cells) <= MAX_RICH_ROWS and _is_terminal():
        console = make_console()
        width = console.width - indent
        if _total_width(_column_widths(titles, cells, width)) <= width:
            rich = rich_table(titles, cells, last_styles or {}, width=width)
            _print_indented(console, rich, indent)
            return
    plain = start_plain_table(titles, cells, indent)
    print_plain_rows(plain, cells)


def printable_cells(row: Sequence[object]) -> list[str]:
    """Return the cells as texts that cannot control the terminal."""
    return [printable("" if cell is None else cell) for cell in row]


def _is_terminal() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


# --- plain text, for pipes and for long tables -----------------------------------------------


def start_plain_table(
    titles: Sequence[str], first_rows: Sequence[Sequence[str]], indent: int = 0
) -> PlainTable:
    """Print the head of a table whose columns are as wide as the first rows need."""
    table = PlainTable(titles, first_rows, indent)
    click.echo(f"{table.head}\n{table.rule(_rule_character())}")
    return table


def print_plain_rows(table: PlainTable, rows: Iterable[Sequence[str]]) -> None:
    """Print the rows of a table after its head."""
    lines = (table.line(row) for row in rows)
    while batch := list(islice(lines, ROWS_PER_WRITE)):
        click.echo("\n".join(batch))


def _rule_character() -> str:
    try:
        "─".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "-"
    return "─"


# --- for terminals ---------------------------------------------------------------------------


def _print_indented(console: Console, table: Table, indent: int) -> None:
    from rich.padding import Padding

    console.print(Padding(table, (0, 0, 0, indent)))


def rich_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    styles: dict[str, str],
    *,
    width: int,
    caption: str | None = None,
) -> Table:
    """Return a table for a terminal of ``width``; ``styles`` colour cells by how they begin.

    Cells are folded between words. If the table is still too wide, cells that should stay on
    one line are folded, too, except for numbers, and then long words. Rich cuts off a table that
    is too wide even then.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), caption=caption
    )
    cells = [printable_cells(row) for row in rows]
    for title, column_width in zip(titles, _column_widths(titles, cells, width), strict=True):
        table.add_column(
            title.rstrip(">="),
            justify="right" if title.endswith(">") else "left",
            overflow="fold",
            width=column_width,
        )
    for row in cells:
        table.add_row(*(Text(cell, style=_style(cell, styles)) for cell in row))
    return table


def _column_widths(titles: Sequence[str], cells: list[list[str]], width: int) -> list[int]:
    """Return the widths of columns for a table of ``width``; the table may still be too wide.

    A column is at least as wide as its longest word. The remaining space goes first to the
    columns that need least of it to show all cells on one line.
    """
    columns = [[title.rstrip(">="), *column] for title, *column in zip(titles, *cells, strict=True)]
    full = [max(map(text_width, column)) for column in columns]
    words = [max(map(_longest_word, column)) for column in columns]
    least = full
    for kept_ends, max_word in FOLDINGS:
        least = [
            full[index] if title.endswith(kept_ends) else min(words[index], max_word)
            for index, title in enumerate(titles)
        ]
        if _total_width(least) <= width:
            break
    return _widened(least, full, width - _total_width(least))


def _longest_word(text: str) -> int:
    return max(map(text_width, text.split()), default=0)


def _widened(widths: list[int], full: list[int], spare: int) -> list[int]:
    """Return the widths after the spare space was given to the columns that need least of it."""
    widened = list(widths)
    for index in sorted(range(len(widths)), key=lambda index: full[index] - widths[index]):
        more = min(full[index] - widths[index], max(0, spare))
        widened[index] += more
        spare -= more
    return widened


def _total_width(widths: list[int]) -> int:
    return sum(widths) + RICH_GAP * (len(widths) - 1)


def _style(cell: str, styles: dict[str, str]) -> str:
    return next((style for start, style in styles.items() if cell.startswith(start)), "")

"""Tables, lines and lists on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zae_limiter.cli.columns import Columns
from zae_limiter.cli.render import make_console, print_json
from zae_limiter.cli.words import limits_line, plain, rate

if TYPE_CHECKING:
    from zae_limiter.cli.pages import Pages
    from zae_limiter.models.limit import Limit

T = TypeVar("T")

LONG = 1000


def show(output: str, data: Any, *lines: str) -> None:
    """A result: JSON, or lines for people."""
    if output == "json":
        print_json(data)
    else:
        for line in lines:
            say(line)


def say(line: str) -> None:
    """One line on stdout."""
    click.echo(plain(line).rstrip())


def hint(output: str, line: str) -> None:
    """What helps people and is no part of the result."""
    if output != "json":
        click.echo(plain(line), err=True)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    indent: int = 0,
    last_styles: dict[str, str] | None = None,
) -> None:
    """Aligned columns; heads in ``>`` are of numbers, those in ``=`` stay whole. Nothing is cut.

    On a terminal long cells go on in the next line; elsewhere, and in long tables, lines are as
    long as they must be.
    """
    cells = [_cells(row) for row in rows]
    if len(cells) <= LONG and _is_terminal():
        _print_laid_out(heads, cells, indent, last_styles or {})
        return
    columns = Columns(heads, cells, indent)
    columns.print_head()
    columns.print_rows(cells)


def stream_table(
    heads: Sequence[str], pages: Pages[T], row: Callable[[T], Sequence[object]]
) -> None:
    """A table of any length, printed as its pages come.

    One page is a table like others; more have columns as wide as the first page needs.
    """
    columns = None
    for page in pages:
        if columns is None and pages.is_over:
            print_table(heads, map(row, page))
            return
        cells = [_cells(row(each)) for each in page]
        if columns is None:
            columns = Columns(heads, cells)
            columns.print_head()
        columns.print_rows(cells)


def _print_laid_out(
    heads: Sequence[str], cells: list[list[str]], indent: int, styles: dict[str, str]
) -> None:
    """Within the width of the terminal, which takes a millisecond for each row."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(
            head.rstrip(">="),
            justify="right" if head.endswith(">") else "left",
            overflow="fold",
            no_wrap=head.endswith((">", "=")),
        )
    for row in cells:
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    make_console().print(Padding(table, (0, 0, 0, indent)))


def _is_terminal() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _cells(row: Sequence[object]) -> list[str]:
    return [plain("" if cell is None else cell) for cell in row]


def print_limits(limits: Iterable[Limit]) -> None:
    print_table(
        ("limit", "rate>", "burst>"),
        ((limit.name, rate(limit), f"{limit.capacity:,}") for limit in limits),
    )


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line."""
    known = [(name, value) for name, value in fields if value is not None]
    width = max(len(name) for name, _ in known)
    for name, value in known:
        say(f"{name.ljust(width)}  {value}")


def described(limits: Iterable[Limit]) -> str:
    return limits_line(limits) or "none"


def stream_json(name: str, pages: Iterable[list[T]], item: Callable[[T], Any]) -> None:
    """``{"name": [...`` as the pages come; ``end_json`` closes it."""
    click.echo(f'{{\n  "{name}": [', nl=False)
    first = True
    for page in pages:
        texts = [_indented(item(each)) for each in page]
        click.echo(("" if first else ",") + ",".join(texts), nl=False)
        first = False
    click.echo("]" if first else "\n  ]", nl=False)


def end_json(**rest: Any) -> None:
    """The fields after the list."""
    for name, value in rest.items():
        click.echo(f',\n  "{name}": {json.dumps(value)}', nl=False)
    click.echo("\n}")


def _indented(item: Any) -> str:
    text = json.dumps(item, indent=2, allow_nan=False)
    return "\n    " + text.replace("\n", "\n    ")

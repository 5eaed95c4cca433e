"""Tables, lines and lists on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.render import make_console, print_json
from zae_limiter.cli.words import limits_line, plain, rate

if TYPE_CHECKING:
    from rich.console import Console

    from zae_limiter.models.limit import Limit

UNBOUNDED = 10_000
LONG = 1000
BATCH = 500


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
    console: Console | None = None,
    indent: int = 0,
    last_styles: dict[str, str] | None = None,
) -> None:
    """Aligned columns; heads in ``>`` are of numbers, those in ``=`` stay whole. Nothing is cut.

    On a terminal long cells go on in the next line; elsewhere, and in long tables, lines are as
    long as they must be.
    """
    cells = [[plain("" if cell is None else cell) for cell in row] for row in rows]
    if len(cells) > LONG:
        _print_long(heads, cells)
        return
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = console or make_console()
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(
            head.rstrip(">="),
            justify="right" if head.endswith(">") else "left",
            overflow="fold",
            no_wrap=head.endswith((">", "=")),
        )
    styles = last_styles or {}
    for row in cells:
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    shown = Padding(table, (0, 0, 0, indent))
    if console.is_terminal:
        console.print(shown)
        return
    unbounded = console.options.update(width=UNBOUNDED)
    console.width = max(1, console.measure(table, options=unbounded).maximum + indent)
    with console.capture() as captured:
        console.print(shown)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _print_long(heads: Sequence[str], cells: list[list[str]]) -> None:
    """Without the layout that takes a millisecond for each row."""
    titles = [head.rstrip(">=") for head in heads]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    columns = [
        f"{{:{'>' if head.endswith('>') else ''}{w}}}"
        for head, w in zip(heads, widths, strict=True)
    ]
    form = "  ".join(columns)
    rows = iter((titles, ["-" * width for width in widths], *cells))
    while batch := list(islice(rows, BATCH)):
        click.echo("\n".join(form.format(*row).rstrip() for row in batch))


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


def stream_json(name: str, items: Iterable[Any]) -> None:
    """``{"name": [...`` as the items come; ``end_json`` closes it."""
    click.echo(f'{{\n  "{name}": [', nl=False)
    first = True
    found = iter(items)
    while batch := list(islice(found, BATCH)):
        texts = [_indented(item) for item in batch]
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

"""Consoles, questions, live status lines, bars and JSON."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zae_limiter_ops.cli.shared.errors import Interrupted, folded
from zae_limiter_ops.views.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that colours terminals only, never with NO_COLOR, and parses no markup."""
    from rich.console import Console

    class QuietConsole(Console):
        def on_broken_pipe(self) -> None:
            """Raise instead of exiting, as rich would, so that open repositories are closed."""
            raise BrokenPipeError(errno.EPIPE, "the reader of the output has closed it")

    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        # A character that the stream's encoding lacks must not end the command.
        stream.reconfigure(errors="replace")
    return QuietConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def is_live(console: Console) -> bool:
    """Whether printed lines can be overwritten."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


def print_json(data: Any) -> None:
    """Print strict JSON on stdout."""
    click.echo(json.dumps(data, indent=2, allow_nan=False))


def confirm(consequences: str, question: str, *, yes: bool) -> None:
    """State the consequences and ask for confirmation; raise if the answer is no.

    With ``yes`` nothing is asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{printable(consequences)}. There is no terminal for the question: "
            "add --yes to confirm"
        )
    click.echo(folded(f"{printable(consequences)}.", sys.stderr), err=True)
    try:
        confirmed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        raise Interrupted("before anything was changed") from None
    if not confirmed:
        raise click.ClickException("not confirmed; nothing was changed")


def confirm_number(consequences: str, what: str, number: int) -> None:
    """State the consequences and ask for their number, which nobody types by habit."""
    click.echo(folded(f"{printable(consequences)}.", sys.stderr), err=True)
    try:
        typed = click.prompt(f"To confirm, type the number of {what}", err=True)
    except click.Abort:
        click.echo(err=True)
        raise Interrupted("before anything was changed") from None
    if typed.strip().replace(",", "") != str(number):
        raise click.ClickException("not confirmed; nothing was changed")


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show a live line on stderr during the block; the yielded function changes its text."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    console = make_console(stderr=True)
    if not is_live(console):
        yield lambda _: None
        return
    with console.status(text) as line:
        yield line.update


class Glyphs(NamedTuple):
    """Drawing characters that the console can encode."""

    full: str
    half: str
    rest: str
    child: str
    last_child: str
    at_most: str

    @classmethod
    def of(cls, console: Console) -> Glyphs:
        return ASCII if console.options.ascii_only else UNICODE

    def bar(self, share: float, width: int) -> tuple[str, str]:
        """Return the full and the empty part of a bar, ``width`` characters together."""
        halves = round(min(1.0, max(0.0, share)) * width * 2)
        full = self.full * (halves // 2) + self.half * (halves % 2)
        return full, self.rest * (width - len(full))

    def tree(self, entries: Iterable[tuple[str, bool]]) -> list[str]:
        """Return tree labels for (name, is_child) pairs, children after their parent."""
        nodes = list(entries)
        next_is_child = [is_child for _, is_child in nodes[1:]] + [False]
        return [
            ((self.child if more else self.last_child) + name) if is_child else name
            for (name, is_child), more in zip(nodes, next_is_child, strict=True)
        ]


UNICODE = Glyphs("━", "╸", "─", "├ ", "└ ", "≤")
ASCII = Glyphs("=", "-", ".", "|- ", "`- ", "<=")


def bar(share: float, width: int) -> str:
    """Return a bar of ``width`` characters of which a share is filled, as stdout can print it."""
    try:
        "".join(UNICODE[:3]).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "".join(ASCII.bar(share, width))
    return "".join(UNICODE.bar(share, width))

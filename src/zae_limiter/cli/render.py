"""What commands print with: consoles, numbers, bars, JSON."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """Colours on a terminal only, none with NO_COLOR; text is printed as it is."""
    from rich.console import Console

    class QuietConsole(Console):
        def on_broken_pipe(self) -> None:
            """Let it be an ordinary error, so that the command closes what it has open."""
            raise BrokenPipeError(errno.EPIPE, "nobody reads the output any more")

    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a narrow encoding must not end a command
    return QuietConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def is_live(console: Console) -> bool:
    """Whether what was printed can be painted over."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


def print_json(data: Any) -> None:
    """Strict JSON on stdout."""
    click.echo(json.dumps(data, indent=2, allow_nan=False))


def number(value: int) -> str:
    return f"{value:,}"


def short_number(value: int) -> str:
    """Three digits and a letter, where there is no room for more."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return str(value)


class Glyphs(NamedTuple):
    """Drawing characters that the terminal knows."""

    full: str
    half: str
    rest: str
    child: str
    last_child: str
    at_most: str
    dot: str

    @classmethod
    def of(cls, console: Console) -> Glyphs:
        return ASCII if console.options.ascii_only else UNICODE

    def bar(self, share: float, width: int) -> tuple[str, str]:
        """The full and the empty part of a bar, ``width`` characters together."""
        halves = round(min(1.0, max(0.0, share)) * width * 2)
        full = self.full * (halves // 2) + self.half * (halves % 2)
        return full, self.rest * (width - len(full))

    def tree(self, entries: Iterable[tuple[str, bool]]) -> list[str]:
        """Labels for (name, whether it stands under the last one that does not)."""
        listed = list(entries)
        below = [is_child for _, is_child in listed[1:]] + [False]
        return [
            ((self.child if more else self.last_child) + name) if is_child else name
            for (name, is_child), more in zip(listed, below, strict=True)
        ]


UNICODE = Glyphs("━", "╸", "─", "├ ", "└ ", "≤", "·")
ASCII = Glyphs("=", "-", ".", "|- ", "`- ", "<=", "-")

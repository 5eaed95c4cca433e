"""Asking before something is lost, and showing that something is going on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from zae_limiter.cli.errors import Interrupted
from zae_limiter.cli.render import is_live, make_console
from zae_limiter.cli.words import plain


def confirm(consequences: str, question: str, *, yes: bool) -> None:
    """Spell out what will happen and ask; returns only on consent."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{plain(consequences)}. There is no terminal to ask on: add --yes if that is meant"
        )
    click.echo(f"{plain(consequences)}.", err=True)
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        raise Interrupted("before anything was changed") from None
    if not agreed:
        raise click.ClickException("not confirmed; nothing was changed")


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A live line on stderr while something runs; the yielded function changes its text."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    console = make_console(stderr=True)
    if not is_live(console):
        yield lambda _: None
        return
    with console.status(text) as line:
        yield line.update

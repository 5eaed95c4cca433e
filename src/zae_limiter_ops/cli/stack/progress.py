"""The progress of a stack: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.console import is_live, make_console
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.tables import rich_table
from zae_limiter_ops.views.formatting import printable

if TYPE_CHECKING:
    from rich.table import Table

    from zae_limiter_ops.infra.progress import StackEvent

STYLES = {"CREATE_C": "green", "UPDATE_C": "green", "DELETE_C": "green"}
REFRESHES_PER_S = 4


@contextmanager
def stack_progress(title: str) -> Iterator[Callable[[StackEvent], None]]:
    """Show events on stderr during the block; the yielded function takes an event."""
    if not sys.stderr.isatty():
        yield _print_event
        return
    console = make_console(stderr=True)
    if not is_live(console):
        yield _print_event
        return
    from rich.live import Live

    progress = ResourceTable(title, console.width)
    with Live(
        get_renderable=progress.render,
        console=console,
        refresh_per_second=REFRESHES_PER_S,
        transient=True,
    ):
        yield progress.add


class ResourceTable:
    """The last event of each resource, the newest resource last."""

    def __init__(self, title: str, width: int) -> None:
        self._title = title
        self._width = width
        self._began = time.monotonic()
        self._events: dict[str, StackEvent] = {}

    def add(self, event: StackEvent) -> None:
        self._events[event.logical_id] = event

    def render(self) -> Table:
        seconds = int(time.monotonic() - self._began)
        rows = [
            (event.status, event.logical_id, _kind(event), event.reason)
            for event in list(self._events.values())
        ]
        return rich_table(
            ("status", "resource", "type", "reason"),
            rows,
            {**STYLES, "CREATE_F": "red", "UPDATE_F": "red", "DELETE_F": "red", "ROLLBACK": "red"},
            width=self._width,
            caption=f"{self._title}, {seconds} s",
        )


def _kind(event: StackEvent) -> str:
    return event.resource_type.removeprefix("AWS::")


def _print_event(event: StackEvent) -> None:
    reason = f"  {event.reason}" if event.reason else ""
    line = f"{event.at[11:19]}  {event.status:<20}  {event.logical_id}  {_kind(event)}{reason}"
    click.echo(printable(line), err=True)


def finish_deployment(functions: Iterable[str]) -> str:
    """Say that functions have the code of the template, and how the deployment is finished."""
    names = ", ".join(functions)
    return (
        f"{names} has no code yet: a deployment was interrupted; finish it, which keeps the "
        f"options of the stack: {suggested('deploy')}"
    )

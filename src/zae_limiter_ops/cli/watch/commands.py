"""``zae-limiter watch``: polls the marks of thresholds and prints the new ones. It writes nothing.

It needs no part in the calls: the clients that reach thresholds mark them in the store.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter_ops.cli.shared.completion import complete_resource
from zae_limiter_ops.cli.shared.options import output_option, validation_callback
from zae_limiter_ops.cli.shared.param_types import Seconds
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import (
    print_hint,
    print_plain_rows,
    printable_cells,
    start_plain_table,
)
from zae_limiter_ops.views.advice import GivenOptions, did_you_mean, in_shell_terms

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.cli.watch.raised import RaisedThreshold
    from zae_limiter_ops.views.columns import PlainTable

INTERVAL_S = "10"


def _resources(names: tuple[str, ...]) -> tuple[str, ...]:
    from zae_limiter.naming import check_resource

    return tuple(dict.fromkeys(check_resource(name) for name in names))


@click.command()
@click.option(
    "--resource",
    "-r",
    "resources",
    metavar="NAME",
    multiple=True,
    required=True,
    callback=validation_callback(_resources),
    shell_complete=complete_resource,
    help="Resource whose quotas and budgets are watched; may be repeated.",
)
@click.option(
    "--interval",
    type=Seconds(0.1, 3600),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two looks.",
)
@click.option("--once", is_flag=True, help="Look once and end.")
@store_options
@output_option
@click.pass_context
def watch(
    ctx: click.Context,
    store: StoreLocation,
    resources: tuple[str, ...],
    interval: float,
    once: bool,
    output: str,
) -> None:
    """Print thresholds of quotas and budgets as they are raised.

    First come the thresholds that were raised in the running windows, then each new one, once. A
    reset or a top-up lets thresholds be raised again. The amount used includes what calls in
    flight hold. Each look reads all buckets on the resources; on DynamoDB it queries an index, and
    costs as much as bucket list --all. The command only reads. It goes on when the store does not
    answer for a while, and ends on Ctrl-C or SIGTERM. In JSON each threshold is an object on a line
    of its own.

    \b
    Examples:
      zae-limiter watch --resource gpt-4
      zae-limiter watch -r gpt-4 -r all-models --interval 60 --output json
      zae-limiter watch -r gpt-4 --once

    JSON: entity_id, resource, limit_name, percent, used, amount (money is a text), window_start,
    window_end.
    """
    given = ctx.find_object(GivenOptions) or GivenOptions()
    with _ending_quietly(), store.open() as repository:
        watcher = Watcher(repository, resources, output, given)
        watcher.hint_unused()
        watcher.look(is_last=once)
        while not once:
            time.sleep(interval)
            watcher.look()


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """End the block on Ctrl-C and on SIGTERM, which is no error here.

    A shell starts background commands with SIGINT ignored; then only SIGTERM ends this one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


class Watcher:
    """Looks at the quotas of resources, and prints the thresholds that are new."""

    def __init__(
        self,
        repository: SyncRepository,
        resources: tuple[str, ...],
        output: str,
        given: GivenOptions,
    ) -> None:
        from zae_limiter_ops.cli.watch.raised import SeenMarks

        self._repository = repository
        self._resources = resources
        self._output = output
        self._given = given
        self._seen = SeenMarks()
        self._table: PlainTable | None = None
        self._is_down = False

    def hint_unused(self) -> None:
        """Name resources that were never charged, in case of a typo."""
        known = self._repository.list_resources()
        for name in self._resources:
            if name not in known:
                suggestion = did_you_mean(name, known)
                print_hint(self._output, f"nothing was charged on {name!r} so far{suggestion}")

    def look(self, *, is_last: bool = False) -> None:
        """Print the thresholds that were raised since the last look.

        If the store does not answer, the first of such looks says so, unless it is the last look:
        then the error ends the command.
        """
        try:
            states = [
                state
                for resource in self._resources
                for state in self._repository.get_resource_buckets(resource)
            ]
        except RateLimiterUnavailable as error:
            if is_last:
                raise
            if not self._is_down:
                self._is_down = True
                reason = in_shell_terms(error, self._given)
                click.echo(f"the store does not answer, trying again: {reason}", err=True)
            return
        if self._is_down:
            self._is_down = False
            click.echo("the store answers again", err=True)
        found = self._seen.new(states)
        self._print(found)
        if is_last and not found:
            print_hint(self._output, "no threshold was raised in the running windows")

    def _print(self, found: list[RaisedThreshold]) -> None:
        from zae_limiter_ops.cli.watch.raised import COLUMNS
        from zae_limiter_ops.views.columns import cells_of, json_of, titles_of

        if self._output == "json":
            for each in found:
                click.echo(json.dumps(json_of(COLUMNS, each)))
            return
        cells = [printable_cells(cells_of(COLUMNS, each)) for each in found]
        if cells and self._table is None:
            self._table = start_plain_table(titles_of(COLUMNS), cells)
        if self._table is not None:
            print_plain_rows(self._table, cells)

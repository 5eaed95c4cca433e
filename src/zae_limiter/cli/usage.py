"""``zae-limiter usage``: who used how much, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.consent import status
from zae_limiter.cli.groups import CommandGroup
from zae_limiter.cli.options import checked, how_many_option
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import hint, show
from zae_limiter.cli.usage_options import Selection, usage_options
from zae_limiter.cli.usage_output import (
    draw,
    nothing_found,
    print_csv,
    print_summary,
    print_summary_csv,
    print_windows,
    snapshot_json,
    summary_json,
)

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import Store
    from zae_limiter.cli.usage_source import UsageSource

MOST = 100_000  # windows that a picture is made of


@click.group(cls=CommandGroup)
def usage() -> None:
    """Who used how much, by the hour or the day.

    \b
    Example:
      zae-limiter usage list --entity-id key-7 --plot
    """


def _next_key(value: str) -> str:
    from zae_limiter.models.timestamps import ms_from_iso
    from zae_limiter.usage_report import DELIMITER, UsageQuery, page_of

    page_of((), UsageQuery.parse(None, None, None), 1, value)
    ms_from_iso(value.partition(DELIMITER)[0], "next_key")
    return value


@usage.command("list")
@usage_options
@how_many_option
@click.option(
    "--next-key",
    metavar="KEY",
    callback=checked(_next_key),
    help="Continue where the last page ended.",
)
@store_options
def list_usage(store: Store, chosen: Selection, limit: int, next_key: str | None) -> None:
    """List usage windows, oldest first.

    Net tokens of each limit: adjustments and refunds included, each token once. Of an
    entity, of a resource, or else of every resource that has limits of its own.

    \b
    Examples:
      zae-limiter usage list --namespace tenant-alpha
      zae-limiter usage list --entity-id key-7 --start 2026-01-31
      zae-limiter usage list --resource gpt-4 --window daily --plot
      zae-limiter usage list --resource gpt-4 --output csv > usage.csv
      zae-limiter usage list --resource gpt-4 --output svg --file usage.svg

    JSON: snapshots (each: entity_id, resource, window_start, window_end, window_type, counters,
    total_events), next_key (null at the end).
    """
    with store.open() as repository:
        source = _source(repository, chosen)
        with status("reading usage"):
            found, more = source.page(MOST if chosen.is_picture else limit, next_key)
        if not found and chosen.output != "json":
            hint("table", nothing_found(repository))
    if chosen.is_picture:
        draw(found, chosen.window, chosen.output, chosen.file, is_part=more is not None)
    elif chosen.output == "json":
        show("json", {"snapshots": [snapshot_json(each) for each in found], "next_key": more})
    elif chosen.output == "csv":
        print_csv(found)
    elif found:
        print_windows(found, chosen.window)
    if more is not None and not chosen.is_picture:
        hint(chosen.output, f"more: add --next-key {more!r}")


@usage.command("summary")
@usage_options
@store_options
def summary(store: Store, chosen: Selection) -> None:
    """Show totals, and averages per window with usage.

    \b
    Examples:
      zae-limiter usage summary --entity-id key-7
      zae-limiter usage summary --resource gpt-4 --window daily --plot

    JSON: snapshot_count, total, average (both by limit), min_window_start, max_window_start.
    """
    with store.open() as repository:
        source = _source(repository, chosen)
        with status("reading usage"):
            found = source.summary()
        if not found.snapshot_count and chosen.output != "json":
            hint("table", nothing_found(repository))
        if chosen.is_picture:
            windows, more = source.page(MOST)
            draw(windows, chosen.window, chosen.output, chosen.file, is_part=more is not None)
    if chosen.output == "json":
        show("json", summary_json(found))
    elif chosen.output == "csv":
        print_summary_csv(found)
    elif chosen.output == "table" and found.snapshot_count:
        print_summary(found, chosen.window, chosen.plot)


def _source(repository: SyncRepository, chosen: Selection) -> UsageSource:
    from zae_limiter.cli.usage_source import UsageSource, subjects_of

    subjects = subjects_of(repository, chosen.entity_id, chosen.resource)
    if not subjects:
        raise click.ClickException(
            "no resource has limits of its own here; say whose usage: --entity-id or --resource"
        )
    return UsageSource(repository, subjects, chosen.window, chosen.start, chosen.end)

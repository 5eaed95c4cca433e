"""``zae-limiter usage``: consumed tokens by hour or day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.app import CommandGroup
from zae_limiter.cli.console import status
from zae_limiter.cli.options import count_option, validation_callback
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import print_hint, print_result
from zae_limiter.cli.usage_options import UsageOptions, usage_options
from zae_limiter.cli.usage_output import (
    draw_usage,
    no_usage_hint,
    print_csv,
    print_summary,
    print_summary_csv,
    print_windows,
    snapshot_json,
    summary_json,
)

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import StoreLocation
    from zae_limiter.cli.usage_source import UsageSource

# A chart needs all windows in memory; this many are eleven years of hours of one entity.
MAX_CHART_WINDOWS = 100_000


@click.group(cls=CommandGroup)
def usage() -> None:
    """Show consumed tokens by hour or day.

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
@count_option("windows")
@click.option(
    "--next-key",
    metavar="KEY",
    callback=validation_callback(_next_key),
    help="Continue after the page that returned this key.",
)
@store_options
def list_usage(
    store: StoreLocation, options: UsageOptions, limit: int, next_key: str | None
) -> None:
    """List usage windows, oldest first.

    Shows the net tokens of each limit, adjustments and refunds included: of an entity, of a
    resource, or otherwise of every resource that has limits.

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
        source = _source(repository, options)
        with status("reading usage"):
            windows, next_page = source.page(
                MAX_CHART_WINDOWS if options.is_chart else limit, next_key
            )
        if not windows and options.output != "json":
            print_hint("table", no_usage_hint(repository))
    if options.is_chart:
        draw_usage(
            windows, options.window, options.output, options.file, is_part=next_page is not None
        )
    elif options.output == "json":
        data = [snapshot_json(snapshot) for snapshot in windows]
        print_result("json", {"snapshots": data, "next_key": next_page})
    elif options.output == "csv":
        print_csv(windows)
    elif windows:
        print_windows(windows, options.window)
    if next_page is not None and not options.is_chart:
        print_hint(options.output, f"more: add --next-key {next_page!r}")


@usage.command("summary")
@usage_options
@store_options
def summary(store: StoreLocation, options: UsageOptions) -> None:
    """Show totals, and averages per window with usage.

    \b
    Examples:
      zae-limiter usage summary --entity-id key-7
      zae-limiter usage summary --resource gpt-4 --window daily --plot

    JSON: snapshot_count, total, average (both by limit), min_window_start, max_window_start.
    """
    with store.open() as repository:
        source = _source(repository, options)
        with status("reading usage"):
            totals = source.summary()
        if not totals.snapshot_count and options.output != "json":
            print_hint("table", no_usage_hint(repository))
        if options.is_chart:
            windows, next_page = source.page(MAX_CHART_WINDOWS)
            draw_usage(
                windows, options.window, options.output, options.file, is_part=next_page is not None
            )
    if options.output == "json":
        print_result("json", summary_json(totals))
    elif options.output == "csv":
        print_summary_csv(totals)
    elif options.output == "table" and totals.snapshot_count:
        print_summary(totals, options.window, after_chart=options.plot)


def _source(repository: SyncRepository, options: UsageOptions) -> UsageSource:
    from zae_limiter.cli.usage_source import UsageSource, resolve_subjects

    subjects = resolve_subjects(repository, options.entity_id, options.resource)
    if not subjects:
        raise click.ClickException(
            "no resource of this namespace has limits; give --entity-id or --resource"
        )
    return UsageSource(repository, subjects, options.window, options.first_window, options.end)

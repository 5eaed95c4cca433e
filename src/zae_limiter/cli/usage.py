"""``zae-limiter usage``: consumed tokens by hour, day or month, and the largest consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.cli.app import CommandGroup
from zae_limiter.cli.console import status
from zae_limiter.cli.options import count_option, resource_filter, validation_callback
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import print_hint, print_result
from zae_limiter.cli.usage_options import UsageOptions, file_option, usage_options
from zae_limiter.cli.usage_output import (
    NO_USAGE,
    draw_usage,
    print_csv,
    print_page,
    print_ranking,
    print_ranking_csv,
    print_summary,
    print_summary_csv,
    print_windows,
    ranking_json,
    snapshot_json,
    summary_json,
)

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import StoreLocation
    from zae_limiter.models.usage import UsageSnapshot, UsageSummary

# A chart needs all windows in memory; this many are eleven years of hours of one entity.
MAX_CHART_WINDOWS = 100_000
DEFAULT_RANKED = 10


@click.group(cls=CommandGroup)
def usage() -> None:
    """Show consumed tokens by hour, day or month.

    \b
    Example:
      zae-limiter usage list --entity-id key-7 --plot
    """


def _next_key(value: str) -> str:
    from zae_limiter.usage_report import UsageQuery, page_of

    page_of((), UsageQuery.parse(None, None, None), 1, value)
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

    Shows the net tokens of each limit, adjustments and refunds included, the admitted calls, and
    the rejected calls (approximate): of an entity, of a resource, of both, or of the whole
    namespace. Tokens that a parent used through its children are in its own row and in theirs;
    charts count them once.

    \b
    Examples:
      zae-limiter usage list --namespace tenant-alpha
      zae-limiter usage list --entity-id key-7 --start 2026-01-31
      zae-limiter usage list --resource gpt-4 --window daily --plot
      zae-limiter usage list --resource gpt-4 --output csv > usage.csv
      zae-limiter usage list --window daily --output html --file usage.html

    JSON: snapshots (each: entity_id, resource, window_start, window_end, window_type, counters,
    total_events, through_children (the part of counters that children count, too), rejected),
    next_key (null at the end).
    """
    with store.open() as repository:
        with status("reading usage"):
            windows, next_page = _page(
                repository, options, MAX_CHART_WINDOWS if options.reads_all else limit, next_key
            )
            totals = _summary(repository, options) if options.output == "html" else None
        if not windows and options.output != "json":
            print_hint("table", NO_USAGE)
    is_part = next_page is not None
    if totals is not None:
        print_page(options, windows, totals, is_part=is_part)
    elif options.is_chart:
        draw_usage(windows, options.window, options.output, options.file, is_part=is_part)
    elif options.output == "json":
        data = [snapshot_json(snapshot) for snapshot in windows]
        print_result("json", {"snapshots": data, "next_key": next_page})
    elif options.output == "csv":
        print_csv(windows)
    elif windows:
        print_windows(windows, options.window)
    if next_page is not None and not options.reads_all:
        print_hint(options.output, f"more: add --next-key {next_page!r}")


@usage.command("summary")
@usage_options
@store_options
def summary(store: StoreLocation, options: UsageOptions) -> None:
    """Show totals, and averages per hour, day or month with usage.

    The total of one entity is all that it has used. Over several entities each token counts once:
    what parents used through their children is shown apart.

    \b
    Examples:
      zae-limiter usage summary --entity-id key-7
      zae-limiter usage summary --resource gpt-4 --window daily --plot

    JSON: snapshot_count, window_count (hours, days or months with usage), total, average,
    through_children (these by limit), rejected, min_window_start, max_window_start.
    """
    with store.open() as repository:
        windows: list[UsageSnapshot] = []
        next_page = None
        with status("reading usage"):
            totals = _summary(repository, options)
            if options.reads_all:
                windows, next_page = _page(repository, options, MAX_CHART_WINDOWS)
        if not totals.snapshot_count and options.output != "json":
            print_hint("table", NO_USAGE)
    is_part = next_page is not None
    if options.output == "html":
        print_page(options, windows, totals, is_part=is_part)
    elif options.is_chart:
        draw_usage(windows, options.window, options.output, options.file, is_part=is_part)
    if options.output == "json":
        print_result("json", summary_json(totals))
    elif options.output == "csv":
        print_summary_csv(totals)
    elif options.output == "table" and totals.snapshot_count:
        print_summary(
            totals,
            options.window,
            after_chart=options.plot,
            of_several=options.entity_id is None,
        )


def _limit_name(value: str) -> str:
    from zae_limiter.naming import check_limit_name

    return check_limit_name(value)


def _span(value: str) -> str:
    from zae_limiter.usage_ranking import hours_of_last

    hours_of_last(value, 0)
    return value


@usage.command("top")
@click.option(
    "--by",
    metavar="LIMIT",
    callback=validation_callback(_limit_name),
    help="Rank by the tokens of this limit, such as tpm; otherwise by admitted calls.",
)
@click.option(
    "--last",
    metavar="SPAN",
    default="24h",
    show_default=True,
    callback=validation_callback(_span),
    help="Of which span of time until now, such as 24h or 7d; rounded to whole hours.",
)
@resource_filter
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=DEFAULT_RANKED,
    show_default=True,
    help="Show at most this many entities.",
)
@click.option(
    "--output",
    type=click.Choice(("table", "json", "csv", "html")),
    default="table",
    show_default=True,
    help="Output format; html is one page without outside parts, to mail.",
)
@file_option("File of the page, with --output html.")
@store_options
def top(
    store: StoreLocation,
    by: str | None,
    last: str,
    resource: str | None,
    limit: int,
    output: str,
    file: str | None,
) -> None:
    """List the entities that used most.

    They are ranked by what they used themselves. Parents, for which the use of their children
    counts, too, are listed apart.

    \b
    Examples:
      zae-limiter usage top --by tpm
      zae-limiter usage top --by tpm --last 7d --resource gpt-4

    JSON: by (null: calls), start_time, end_time, consumers, parents (each: entity_id, counters,
    through_children, total_events, rejected).
    """
    if file is not None and output != "html":
        raise click.UsageError("--file goes with --output html")
    with store.open() as repository:
        with status("reading usage"):
            ranking = repository.get_top_usage(by, last, resource=resource, limit=limit)
        if not (ranking.consumers or ranking.parents) and output in ("table", "csv"):
            print_hint("table", NO_USAGE)
    if output == "json":
        print_result("json", ranking_json(ranking))
    elif output == "csv":
        print_ranking_csv(ranking)
    else:
        print_ranking(ranking, resource, file, as_page=output == "html")


def _page(
    repository: SyncRepository, options: UsageOptions, limit: int, next_key: str | None = None
) -> tuple[list[UsageSnapshot], str | None]:
    return repository.get_usage_snapshots(
        options.entity_id,
        options.resource,
        options.window,
        options.first_window,
        options.end,
        limit,
        next_key,
    )


def _summary(repository: SyncRepository, options: UsageOptions) -> UsageSummary:
    return repository.get_usage_summary(
        options.entity_id, options.resource, options.window, options.first_window, options.end
    )

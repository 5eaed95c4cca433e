"""``zae-limiter usage``: consumed tokens by hour, day or month, and the largest consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.naming import check_limit_name
from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.console import status
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.namespace_pages import all_namespaces_option, open_namespaces
from zae_limiter_ops.cli.shared.options import count_option, resource_filter, validation_callback
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.cli.usage.charts import draw_usage, write_ranking_page, write_usage_page
from zae_limiter_ops.cli.usage.options import UsageOptions, file_option, usage_options
from zae_limiter_ops.cli.usage.output import NO_USAGE, print_ranking, print_summaries, print_windows

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.cli.usage.reads import Summaries, Windows

# A chart needs all windows in memory. These are eleven years of hours of one entity.
MAX_CHART_WINDOWS = 100_000
DEFAULT_RANKED = 10
KEY_DELIMITERS = 3  # in a page key of one namespace


@click.group(cls=CommandGroup)
def usage() -> None:
    """Show consumed tokens by hour, day or month.

    \b
    Example:
      zae-limiter usage list --entity-id key-7 --plot
    """


def _next_key(value: str) -> str:
    from zae_limiter.usage.report import DELIMITER, UsageQuery, page_of

    name, _, rest = value.partition(DELIMITER)
    has_namespace = bool(name) and value.count(DELIMITER) in (1, KEY_DELIMITERS + 1)
    key = rest if has_namespace else value
    if key or not has_namespace:  # a namespace alone: the page starts at its first window
        page_of((), UsageQuery.parse(None, None, None), 1, key)
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
@all_namespaces_option
@store_options
def list_usage(
    store: StoreLocation,
    options: UsageOptions,
    limit: int,
    next_key: str | None,
    all_namespaces: bool,
) -> None:
    """List usage windows, oldest first.

    The list shows the net tokens of each limit, adjustments and refunds included, the admitted
    calls, and the calls that were rejected, waited or were shadowed (approximate). It covers an
    entity, a resource, both, or the whole namespace. A call counts once, at the entity that made it
    and the resource that it names first. Tokens that a parent used through its children are in the
    row of the parent and in the rows of the children; charts count them once, and show the largest
    entities by name. With --all-namespaces the namespaces follow one another.

    \b
    Examples:
      zae-limiter usage list --namespace tenant-alpha
      zae-limiter usage list --entity-id key-7 --start 2026-01-31
      zae-limiter usage list --resource gpt-4 --window daily --plot
      zae-limiter usage list --resource gpt-4 --output csv > usage.csv
      zae-limiter usage list --window daily --output html --file usage.html
      zae-limiter usage list --all-namespaces --window monthly

    JSON: snapshots (each: namespace, entity_id, resource, window_start, window_end, window_type,
    counters (money as text), currencies (of budgets), calls, total_events (every acquire that the
    bucket admitted), through_children (the part of counters that children count, too),
    rejected_calls, rejected (every acquire that counts as rejected in the bucket), waited (calls
    that waited, however they ended), limited_by (what rejected most: entity, resource and limit;
    null: nothing), last_limited_by (what rejected the last one), last_rejected_at,
    rejected_through_children (the part of rejected that children count, too), rejected_amounts
    (the largest rejected amount of each limit), shadowed (calls that shadow mode let through
    instead of rejecting them)), next_key (null at the end).
    """
    from zae_limiter_ops.cli.usage.reads import UsageReader

    summaries: Summaries = []
    with open_namespaces(store, all_namespaces) as namespaces:
        reader = UsageReader(namespaces, options)
        with status("reading usage"):
            windows, next_page = reader.page(
                MAX_CHART_WINDOWS if options.reads_all else limit, next_key
            )
            if options.output == "html":
                summaries = reader.summaries()
        if not windows and options.output != "json":
            print_hint("table", NO_USAGE)
            if next_key is None:
                namespaces.hint("table", reader.of_namespace)
    is_part = next_page is not None
    if options.output == "html":
        write_usage_page(options, windows, summaries, namespaces, is_part=is_part)
    elif options.is_chart:
        draw_usage(options, windows, namespaces, is_part=is_part)
    else:
        print_windows(options, windows, namespaces, next_page)
    if next_page is not None and not options.reads_all:
        print_hint(options.output, f"more: add --next-key {quoted(next_page)}")


@usage.command("summary")
@usage_options
@all_namespaces_option
@store_options
def summary(store: StoreLocation, options: UsageOptions, all_namespaces: bool) -> None:
    """Show totals, and averages per hour, day or month with usage.

    The total of one entity contains all its tokens. Over several entities each token counts once:
    the tokens that parents used through their children have a column of their own. With
    --all-namespaces each namespace has its own totals, and the JSON is an object with one field,
    namespaces: a list of objects with the fields below.

    \b
    Examples:
      zae-limiter usage summary --entity-id key-7
      zae-limiter usage summary --resource gpt-4 --window daily --plot
      zae-limiter usage summary --all-namespaces

    JSON: namespace, snapshot_count, window_count (hours, days or months with usage), total,
    average, through_children (these by limit, money as text), currencies (of budgets), calls,
    rejected, rejected_calls (without those of children and of other first resources), waited,
    shadowed, limited_by (what rejected most of them: entity, resource and limit; null: nothing),
    min_window_start, max_window_start.
    """
    from zae_limiter_ops.cli.usage.reads import UsageReader

    windows: Windows = []
    next_page = None
    with open_namespaces(store, all_namespaces) as namespaces:
        reader = UsageReader(namespaces, options)
        with status("reading usage"):
            summaries = reader.summaries()
            if options.reads_all:
                windows, next_page = reader.page(MAX_CHART_WINDOWS)
        has_usage = any(each.snapshot_count for _, each in summaries)
        if not has_usage and options.output != "json":
            print_hint("table", NO_USAGE)
            namespaces.hint("table", reader.of_namespace)
    is_part = next_page is not None
    if options.output == "html":
        write_usage_page(options, windows, summaries, namespaces, is_part=is_part)
        return
    if options.is_chart:
        draw_usage(options, windows, namespaces, is_part=is_part)
    if options.output in ("table", "json", "csv"):
        print_summaries(options, summaries, namespaces)


def _span(value: str) -> str:
    from zae_limiter.usage.ranking import hours_of_last

    hours_of_last(value, 0)
    return value


@usage.command("top")
@click.option(
    "--by",
    metavar="LIMIT",
    callback=validation_callback(check_limit_name),
    help="Rank by the tokens of this limit, such as tpm; default: by admitted calls.",
)
@click.option(
    "--last",
    metavar="SPAN",
    default="24h",
    show_default=True,
    callback=validation_callback(_span),
    help="Span of time until now, such as 24h or 7d; rounded to whole hours.",
)
@resource_filter("Only this resource.")
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
    help="Output format; html is one self-contained page.",
)
@file_option("File of the page, with --output html.")
@all_namespaces_option
@store_options
def top(
    store: StoreLocation,
    by: str | None,
    last: str,
    resource: str | None,
    limit: int,
    output: str,
    file: str | None,
    all_namespaces: bool,
) -> None:
    """List the entities that used most.

    The ranking counts the tokens that entities used themselves. Parents have a list of their own,
    which also counts the tokens of their children. A limit that no call has used and a resource
    that was never seen are refused.

    \b
    Examples:
      zae-limiter usage top --by tpm
      zae-limiter usage top --by tpm --last 7d --resource gpt-4
      zae-limiter usage top --by tpm --all-namespaces

    JSON: by (null: calls), start_time, end_time, consumers, parents (each: namespace, entity_id,
    counters (money as text), currencies (of budgets), through_children, calls (the entity's own),
    total_events (over its buckets), rejected_calls, rejected, waited, shadowed).
    """
    if file is not None and output != "html":
        raise click.UsageError("--file goes with --output html")
    from zae_limiter_ops.cli.usage.reads import rank_usage, ranked_windows
    from zae_limiter_ops.views.names import unknown_resource, unused_limit

    with open_namespaces(store, all_namespaces) as namespaces:
        with status("reading usage"):
            ranking = rank_usage(namespaces, by, last, resource, limit)
        if problem := unused_limit(by, ranking.limit_names):
            raise click.UsageError(f"cannot rank by {by!r}: {problem}")
        if not ranking.limit_names and (problem := unknown_resource(namespaces, resource)):
            raise click.UsageError(problem)
        if not (ranking.consumers or ranking.parents) and output in ("table", "csv"):
            print_hint("table", NO_USAGE)
            namespaces.hint("table", ranked_windows(ranking, resource))
    if output == "html":
        write_ranking_page(ranking, namespaces, resource, file)
    else:
        print_ranking(output, ranking, namespaces)

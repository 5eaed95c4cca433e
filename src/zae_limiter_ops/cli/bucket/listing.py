"""``zae-limiter bucket list``: the levels of all buckets, or of throttled buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.console import status
from zae_limiter_ops.cli.shared.listing import (
    Pages,
    end_json,
    print_next_page,
    stream_json,
    stream_table,
)
from zae_limiter_ops.cli.shared.namespace_pages import all_namespaces_option, open_namespaces
from zae_limiter_ops.cli.shared.options import (
    entity_filter,
    output_option,
    page_options,
    resource_filter,
)
from zae_limiter_ops.cli.shared.param_types import Seconds
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import count_of

if TYPE_CHECKING:
    from zae_limiter_ops.cli.bucket.pages import BucketFilter, BucketPages
    from zae_limiter_ops.cli.shared.store import StoreLocation

WATCH_S = "2"  # the default pause between two reads


class Percent(click.ParamType[float]):
    """A share such as ``90%`` or ``90``."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            percent = float(str(value).removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 < percent <= 100:
            self.fail(f"{value!r} is not a percentage, such as 90%", param, ctx)
        return percent / 100


@click.command("list")
@resource_filter("Only buckets on this resource.")
@entity_filter("Only buckets of this entity.")
@click.option(
    "--limited",
    is_flag=True,
    help="Only buckets that have rejected callers in this hour or the last.",
)
@click.option(
    "--near",
    type=Percent(),
    metavar="PERCENT",
    help="Only limits of which at least this share is used, such as 90%.",
)
@click.option(
    "--sort",
    type=click.Choice(("used", "wait")),
    help="Most used first, or longest waiting time first.",
)
@click.option(
    "--watch",
    is_flag=False,
    flag_value=WATCH_S,
    type=Seconds(0.1, 3600),
    metavar="[SECONDS]",
    help="Show the table again every so many seconds (default: 2), until Ctrl-C.",
)
@page_options("buckets", "bucket", "CURSOR")
@all_namespaces_option
@store_options
@output_option
def list_buckets(
    store: StoreLocation,
    resource: str | None,
    entity_id: str | None,
    limited: bool,
    near: float | None,
    sort: str | None,
    watch: float | None,
    limit: int,
    list_all: bool,
    cursor: str | None,
    all_namespaces: bool,
    output: str,
) -> None:
    """List levels, debts and waiting times of buckets.

    Without --limited, --near and --sort the buckets come a page at a time, in the order of the
    store. With --near or --sort all buckets are read first, and the --limit most used buckets are
    shown. The waiting time ends when one token can be taken; a bucket that is paused or denied is
    marked. The column rejected counts the calls that the bucket has rejected in the running hour. A
    bucket that is not listed is full.

    --limited lists the buckets that have rejected callers in this hour or the last, most rejected
    calls first. The column asked shows the largest rejected amount, and refused by what refused the
    last rejected call: a limit, which may be on another resource and of the parent, a pause or a
    mode. Fits shows when that and the bucket hold the amounts. A limit without a level is a limit
    of the parent, or of calls. Clients report their rejections within 30 seconds.

    \b
    Examples:
      zae-limiter bucket list --limited
      zae-limiter bucket list --resource gpt-4 --near 90% --sort wait
      zae-limiter bucket list --entity key-7 --watch
      zae-limiter bucket list --limited --all-namespaces

    JSON: buckets (each: namespace, entity_id, resource, rejected, refused_by, limited_by (what
    refused most: entity, resource and limit), last_limited_by, last_rejected_at,
    fits_after_seconds (until a call fits that asks for as much, null: never), asked (the largest
    rejected amount of each limit, by name; these six with --limited alone), limits (each:
    limit_name, level_milli, debt_milli (thousandths of a token, null for money), level_billionths,
    debt_billionths (of the currency unit, null for tokens), capacity, refill_amount, used, held,
    window_start, window_end (these four of quotas), currency (of a budget, whose amounts are
    texts), refill_period_seconds, used_pct, retry_after_seconds (until one token, 0 for soft
    limits), full_after_seconds, consumed_milli, consumed_billionths, from_call (the limit was
    passed by calls), paused_until (null if it is not paused), mode, mode_until, asked (with
    --limited: the largest rejected amount), asked_after_seconds (until that fits, null if
    never))), next_cursor (null at the end), buckets_read (null if not all were read).
    """
    from zae_limiter_ops.cli.bucket.pages import BucketFilter, BucketPages
    from zae_limiter_ops.cli.bucket.watch import watch_buckets

    bucket_filter = BucketFilter(limited, near, sort)
    if bucket_filter.reads_all and (cursor or list_all):
        raise click.UsageError(
            "--limited, --near and --sort read all buckets and show the first --limit of them; "
            "leave out --cursor and --all"
        )
    if watch is not None and (output == "json" or list_all):
        raise click.UsageError("--watch shows one table; leave out --output json and --all")
    with open_namespaces(store, all_namespaces) as namespaces:
        pages = BucketPages(namespaces, entity_id, resource)
        if watch is not None:
            watch_buckets(pages, bucket_filter, limit, cursor, pause_s=watch)
        elif bucket_filter.reads_all:
            _list_top(pages, bucket_filter, limit, output)
        else:
            _list_in_order(pages, None if list_all else limit, cursor, output)


def _list_in_order(source: BucketPages, limit: int | None, cursor: str | None, output: str) -> None:
    """List a page of buckets, or all of them, in the order of the store."""
    from zae_limiter_ops.cli.bucket.columns import STYLES, bucket_json, listed_columns

    pages = Pages(source.fetch, limit, cursor)
    if output == "json":
        stream_json("buckets", pages, bucket_json)
        end_json(next_cursor=pages.next_cursor, buckets_read=None)
        return
    columns = listed_columns(source.namespaces, limited=False)
    stream_table(columns, pages, lambda bucket: bucket.rows, styles=STYLES)
    if not pages.record_count and cursor is None:
        _hint_none(source, output)
    print_next_page(output, pages)


def _list_top(source: BucketPages, bucket_filter: BucketFilter, limit: int, output: str) -> None:
    """Read all buckets, and list the first that match the filter."""
    from zae_limiter_ops.cli.bucket.columns import STYLES, bucket_json, listed_columns

    read = 0
    with status("reading all buckets") as show:

        def on_page(count: int) -> None:
            nonlocal read
            read = count
            show(f"reading all buckets: {count:,} so far")

        buckets, wanted = bucket_filter.first(source, limit, on_page)
    if output == "json":
        stream_json("buckets", [buckets], bucket_json)
        end_json(next_cursor=None, buckets_read=None if bucket_filter.limited else read)
        return
    if buckets:
        columns = listed_columns(source.namespaces, limited=bucket_filter.limited)
        rows = [row for bucket in buckets for row in bucket.rows]
        print_columns(columns, rows, styles=STYLES)
    more = ""
    if wanted > len(buckets):
        more = f", the first {len(buckets):,} are shown; more: raise --limit"
    if bucket_filter.limited and (wanted or source.fetch(1, None)[0]):
        have = "bucket has" if wanted == 1 else "buckets have"
        print_hint(output, f"{wanted:,} {have} rejected callers in this hour or the last{more}")
    elif read and not bucket_filter.limited:
        print_hint(output, f"read {count_of(read, 'bucket')}; {wanted:,} of them match{more}")
    else:
        _hint_none(source, output)


def _hint_none(source: BucketPages, output: str) -> None:
    """Say that there is no bucket, with similar names in case of a typo."""
    from zae_limiter_ops.views.names import similar_entities, similar_resources

    repository = source.namespaces.repository
    suggestion = ""
    of = ""
    if source.resource is not None:
        of += f" on {source.resource!r}"
        suggestion = did_you_mean(source.resource, similar_resources(repository))
    if source.entity_id is not None:
        of += f" of {quoted(source.entity_id)}"
        ids = similar_entities(repository, source.entity_id)
        suggestion = suggestion or did_you_mean(source.entity_id, ids)
    print_hint(
        output, f"no bucket{of} is stored: nothing was charged, or all have expired{suggestion}"
    )
    source.namespaces.hint(output, source.of_namespace)

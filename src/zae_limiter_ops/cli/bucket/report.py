"""Buckets printed as tables and as JSON: one row for each limit of a bucket."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from zae_limiter_ops.cli.shared.console import ASCII, UNICODE, Glyphs
from zae_limiter_ops.cli.shared.errors import did_you_mean, suggested
from zae_limiter_ops.cli.shared.formatting import (
    format_duration,
    format_hour,
    format_rate,
    format_time,
    format_tokens,
    seconds_json,
)
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result
from zae_limiter_ops.reports.columns import Column, json_of, of_part

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.cli.bucket.pages import ListedBucket, ListedLimit
    from zae_limiter_ops.cli.shared.lookups import BucketView
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces

BAR_WIDTH = 10  # characters: half of a character is five per cent
# Colours by the beginning of a cell: the limits that do not admit a caller now.
STYLES = {"in ": "red", "paused": "red", "never": "red"}


def _limit_label(view: BucketView) -> str:
    return view.state.limit_name + (" (of calls)" if view.from_call else "")


# The columns of bucket show and of bucket list.
STATE_COLUMNS: tuple[Column[BucketView], ...] = (
    Column(title="limit", value=_limit_label),
    Column(key="limit_name", value=lambda view: view.state.limit_name),
    Column(title="level>", value=lambda view: view.state.tokens),
    Column(key="level_milli", value=lambda view: view.state.tokens_milli),
    Column(key="debt_milli", value=lambda view: view.debt_milli),
    Column(title="of>", key="capacity", value=lambda view: view.state.capacity),
    Column(key="refill_amount", value=lambda view: view.state.limit.refill_amount),
    Column(key="refill_period_seconds", value=lambda view: view.state.limit.refill_period_seconds),
    Column(key="retry_after_seconds", value=lambda view: view.retry_after_seconds),
    Column(key="full_after_seconds", value=lambda view: view.full_after_seconds),
    Column(key="consumed_milli", value=lambda view: view.state.total_consumed_milli),
    Column(key="from_call", value=lambda view: view.from_call),
    Column(key="paused_until", value=lambda view: view.paused_until),
)


# --- bucket show -----------------------------------------------------------------------------


def _full(view: BucketView) -> str:
    seconds = view.full_after_seconds
    return "yes" if seconds <= 0 else f"in {format_duration(seconds)}"


SHOWN_COLUMNS: tuple[Column[BucketView], ...] = (
    Column(title="resource", key="resource", value=lambda view: view.state.resource),
    *STATE_COLUMNS,
    Column(title="refill>", value=lambda view: format_rate(view.state.limit)),
    Column(title="1 token=", value=lambda view: describe_wait(view, view.retry_after_seconds)),
    Column(title="full=", value=_full),
    Column(key="limits_changed", value=lambda view: view.limits_changed),
    Column(key="last_used_hour", value=lambda view: view.last_used_hour),
)


def describe_wait(view: BucketView, seconds: float) -> str:
    """Return ``now``, ``in 3 s``, ``paused, 3 s`` or ``never``."""
    wait = format_duration(seconds)
    if math.isinf(seconds):
        return wait
    if view.paused_seconds:
        return f"paused, {wait}"
    return wait if wait == "now" else f"in {wait}"


def report_buckets(output: str, entity_id: str, buckets: list[BucketView]) -> None:
    """Print the limits of the buckets of an entity, their pauses and their last use."""
    if output == "json":
        data = [json_of(SHOWN_COLUMNS, view) for view in buckets]
        print_result(output, {"entity_id": entity_id, "buckets": data})
    elif buckets:
        print_columns(SHOWN_COLUMNS, buckets)
        print_line("")
        _print_pauses(buckets)
        _print_last_uses(buckets)
        _print_notes(output, entity_id, buckets)


def _print_pauses(buckets: list[BucketView]) -> None:
    for view in {view.state.resource: view for view in buckets}.values():
        if view.paused_until is not None:
            left = format_duration(view.paused_seconds)
            until = format_time(view.paused_until)
            print_line(f"paused on {view.state.resource} until {until}, for {left} more")


def _print_last_uses(buckets: list[BucketView]) -> None:
    last_used = {view.state.resource: view.last_used_hour for view in buckets}
    for resource, start in last_used.items():
        when = f"in the hour of {format_hour(start)}" if start else "not known"
        print_line(f"last use on {resource}: {when}")


def _print_notes(output: str, entity_id: str, buckets: list[BucketView]) -> None:
    if any(view.debt_milli for view in buckets):
        print_hint(output, "a level below zero is a debt: it stops every call until it is repaid")
    if any(view.limits_changed for view in buckets):
        print_hint(
            output,
            "the limits have changed since the last acquire; see the limits of the next acquire: "
            f"{suggested('explain', entity_id, 'RESOURCE')}",
        )


def describe_missing(repository: SyncRepository, entity_id: str, resource: str | None) -> str:
    """Say that there is no bucket, with similar names in case of a typo."""
    used = sorted({state.resource for state in repository.get_buckets(entity_id)})
    if resource is not None and used:
        suggestion = did_you_mean(resource, used)
        return (
            f"{entity_id!r} has no bucket on {resource!r}, so it is full there{suggestion}; "
            f"it has buckets on {', '.join(used)}"
        )
    from zae_limiter_ops.cli.shared.lookups import similar_entities

    suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return f"{entity_id!r} has no buckets (unused or expired), so they are full{suggestion}"


# --- bucket list -----------------------------------------------------------------------------


def _view_of(row: ListedLimit) -> BucketView:
    return row.view


def listed_columns(namespaces: Namespaces, *, limited: bool) -> list[Column[ListedLimit]]:
    """Return the columns of the table; with ``limited``, the columns about rejected callers."""
    return [
        Column(
            title="namespace" if namespaces.are_all else None,
            value=lambda row: row.bucket.namespace,
        ),
        Column(title="entity", value=lambda row: row.bucket.entity_id),
        Column(title="resource", value=lambda row: row.bucket.resource),
        *of_part(STATE_COLUMNS, _view_of),
        Column(title="filled=", value=lambda row: row.view.used_share, format=_bar),
        Column(title="used>", value=lambda row: row.view.used_share, format="{:.0%}".format),
        *(_REJECTION_COLUMNS if limited else _WAIT_COLUMNS),
    ]


def _bar(used_share: float) -> str:
    return "".join(_glyphs().bar(1 - used_share, BAR_WIDTH))


def _glyphs() -> Glyphs:
    try:
        "".join(UNICODE[:3]).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


_WAIT_COLUMNS: tuple[Column[ListedLimit], ...] = (
    Column(
        title="1 token=", value=lambda row: describe_wait(row.view, row.view.retry_after_seconds)
    ),
    Column(
        title="debt>",
        value=lambda row: format_tokens(row.view.debt_milli) if row.view.debt_milli else "",
    ),
    Column(title="rejected>", value=lambda row: row.view.state.rejected or None),
)
_REJECTION_COLUMNS: tuple[Column[ListedLimit], ...] = (
    Column(title="asked>", value=lambda row: row.asked),
    Column(title="fits=", value=lambda row: describe_wait(row.view, row.asked_after_seconds)),
    Column(title="rejected>", value=lambda row: row.bucket.rejected),
    Column(title="refused by", value=lambda row: ", ".join(row.bucket.refused_by)),
)


def _asked_after_seconds(row: ListedLimit) -> float | None:
    return None if row.asked is None else seconds_json(row.asked_after_seconds)


# The JSON of one limit of a listed bucket.
_LIMIT_COLUMNS: tuple[Column[ListedLimit], ...] = (
    *of_part(STATE_COLUMNS, _view_of),
    Column(key="used_pct", value=lambda row: round(100 * row.view.used_share, 3)),
    Column(key="asked", value=lambda row: row.asked),
    Column(key="asked_after_seconds", value=_asked_after_seconds),
)


def bucket_json(bucket: ListedBucket) -> dict[str, Any]:
    """Return the JSON of a listed bucket."""
    return {
        "namespace": bucket.namespace,
        "entity_id": bucket.entity_id,
        "resource": bucket.resource,
        "rejected": bucket.rejected,
        "refused_by": list(bucket.refused_by),
        "limits": [json_of(_LIMIT_COLUMNS, row) for row in bucket.rows],
    }

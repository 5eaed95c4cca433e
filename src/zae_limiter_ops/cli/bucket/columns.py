"""The columns of buckets, for tables and JSON: one row for each limit of a bucket."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from zae_limiter_ops.cli.shared.console import bar
from zae_limiter_ops.views.columns import Column, json_of, of_part, plain_values
from zae_limiter_ops.views.formatting import (
    format_duration,
    format_level,
    format_rate,
    list_or_none,
    plain_amount,
    seconds_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter_ops.cli.bucket.pages import ListedBucket, ListedLimit
    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
    from zae_limiter_ops.views.limit_view import LimitView, UsedLimit

BAR_WIDTH = 10  # characters: half of a character is five per cent
# Colours by the beginning of a cell: the limits that do not admit a caller now.
STYLES = {"in ": "red", "paused": "red", "denied": "red", "never": "red"}


def _limit_label(view: LimitView) -> str:
    return view.limit_name + (" (of calls)" if view.from_call else "")


def _milli(name: str, value: Callable[[LimitView], int | None]) -> Column[LimitView]:
    """Return the column of thousandths of a token; null for money."""

    def tokens(view: LimitView) -> int | None:
        return value(view) if view.currency is None else None

    return Column(key=f"{name}_milli", value=tokens)


def _billionths(name: str, value: Callable[[LimitView], int | None]) -> Column[LimitView]:
    """Return the column of billionths of the currency unit; null for tokens."""

    def money(view: LimitView) -> int | None:
        return None if view.currency is None else value(view)

    return Column(key=f"{name}_billionths", value=money)


# The columns of bucket show and of bucket list.
LEVEL_COLUMNS: tuple[Column[LimitView], ...] = (
    Column(title="level>", value=lambda view: plain_amount(view.level)),
    _milli("level", lambda view: view.level_milli),
    _billionths("level", lambda view: view.level_milli),
    _milli("debt", lambda view: view.below_zero_milli),
    _billionths("debt", lambda view: view.below_zero_milli),
    Column(title="of>", key="capacity", value=lambda view: plain_amount(view.capacity)),
    Column(
        key="refill_amount",
        value=lambda view: (
            plain_amount(view.capacity) if view.is_quota else view.state.limit.refill_amount
        ),
    ),
    Column(key="used", value=lambda view: plain_amount(view.used)),
    Column(key="held", value=lambda view: plain_amount(view.held)),
    Column(
        key="window_start",
        value=lambda view: view.state.window_start and view.state.window_start.isoformat(),
    ),
    Column(
        key="window_end",
        value=lambda view: view.state.window_end and view.state.window_end.isoformat(),
    ),
    Column(key="currency", value=lambda view: view.currency),
    Column(key="refill_period_seconds", value=lambda view: view.state.limit.refill_period_seconds),
    Column(key="retry_after_seconds", value=lambda view: seconds_json(view.retry_after_seconds)),
    Column(key="full_after_seconds", value=lambda view: view.full_after_seconds),
    _milli("consumed", lambda view: view.state.total_consumed_milli),
    _billionths("consumed", lambda view: view.state.total_consumed_milli),
    Column(key="from_call", value=lambda view: view.from_call),
    Column(key="paused_until", value=lambda view: view.paused_until),
    Column(key="mode", value=lambda view: str(view.mode.mode)),
    Column(key="mode_until", value=lambda view: view.mode.to_dict()["mode_until"]),
)


# --- bucket show -----------------------------------------------------------------------------


def _full(view: LimitView) -> str:
    seconds = view.full_after_seconds
    return "yes" if seconds <= 0 else f"in {format_duration(seconds)}"


def _view_of(limit: UsedLimit) -> LimitView:
    return limit.view


_VIEW_COLUMNS: tuple[Column[LimitView], ...] = (
    Column(title="resource", key="resource", value=lambda view: view.resource),
    Column(title="limit", value=_limit_label),
    Column(key="limit_name", value=lambda view: view.limit_name),
    *LEVEL_COLUMNS,
    Column(title="refill>", value=lambda view: format_rate(view.state.limit)),
    Column(title="1 token=", value=lambda view: describe_wait(view, view.retry_after_seconds)),
    Column(title="full=", value=_full),
)
SHOWN_COLUMNS: tuple[Column[UsedLimit], ...] = (
    *of_part(_VIEW_COLUMNS, _view_of),
    Column(key="limits_changed", value=lambda limit: limit.limits_changed),
    Column(key="last_used_hour", value=lambda limit: limit.last_used_hour),
)


def describe_wait(view: LimitView | None, seconds: float) -> str:
    """Return ``now``, ``in 3 s``, ``never``, ``paused, in 3 s``, ``denied`` or ``denied, in 3 s``.

    The wait of a paused bucket may be longer than its pause.
    """
    wait = format_duration(seconds)
    if view is not None and view.denied_seconds:
        return "denied" if math.isinf(seconds) else f"denied, in {wait}"
    if view is not None and view.mode.never_rejects and not seconds:
        return f"now ({view.mode.mode})"
    if math.isinf(seconds):
        return wait
    if view is not None and view.paused_seconds:
        return f"paused, in {wait}"
    return wait if wait == "now" else f"in {wait}"


# --- bucket list -----------------------------------------------------------------------------


def _listed_label(row: ListedLimit) -> str:
    return row.limit_name if row.view is None else _limit_label(row.view)


def _of_view(column: Column[LimitView]) -> Column[ListedLimit]:
    """Return the column for listed limits; its cell is empty where the bucket lacks the limit."""

    def value(row: ListedLimit) -> Any:
        return None if row.view is None else column.value(row.view)

    return Column(value=value, title=column.title, key=column.key)


# The name of a limit is known even if the bucket does not have the limit.
_LISTED_STATE_COLUMNS: tuple[Column[ListedLimit], ...] = (
    Column(title="limit", value=_listed_label),
    Column(key="limit_name", value=lambda row: row.limit_name),
    *(_of_view(column) for column in LEVEL_COLUMNS),
)


def listed_columns(namespaces: Namespaces, *, limited: bool) -> list[Column[ListedLimit]]:
    """Return the columns of the table; with ``limited``, the columns about rejected callers."""
    return [
        Column(
            title="namespace" if namespaces.are_all else None,
            value=lambda row: row.bucket.namespace,
        ),
        Column(title="entity", value=lambda row: row.bucket.entity_id),
        Column(title="resource", value=lambda row: row.bucket.resource),
        *_LISTED_STATE_COLUMNS,
        Column(title="filled=", value=lambda row: row.used_share, format=_bar),
        Column(title="used>", value=lambda row: row.used_share, format=_percent),
        *(_REJECTION_COLUMNS if limited else _WAIT_COLUMNS),
    ]


def _percent(used_share: float | None) -> str:
    return "" if used_share is None else f"{used_share:.0%}"


def _bar(used_share: float | None) -> str:
    return "" if used_share is None else bar(1 - used_share, BAR_WIDTH)


def _debt(view: LimitView) -> str:
    return format_level(view.state.limit, view.below_zero_milli) if view.below_zero_milli else ""


_HELD_WAIT_COLUMNS: tuple[Column[LimitView], ...] = (
    Column(title="1 token=", value=lambda view: describe_wait(view, view.retry_after_seconds)),
    Column(
        title="debt>",
        value=_debt,
    ),
    Column(title="rejected>", value=lambda view: view.rejected or None),
)
_WAIT_COLUMNS = tuple(_of_view(column) for column in _HELD_WAIT_COLUMNS)


def _fits(row: ListedLimit) -> str:
    """Return when the rejected amount fits; nothing where no level tells."""
    if row.view is None and not row.asked_after_seconds:
        return ""
    return describe_wait(row.stopped or row.view, row.asked_after_seconds)


_REJECTION_COLUMNS: tuple[Column[ListedLimit], ...] = (
    Column(title="asked>", value=lambda row: row.asked),
    Column(title="fits=", value=_fits),
    Column(title="rejected>", value=lambda row: row.bucket.rejected),
    Column(title="refused by", value=lambda row: row.bucket.last_limited_by),
)


def _asked_after_seconds(row: ListedLimit) -> float | None:
    return None if row.asked is None else seconds_json(row.asked_after_seconds)


# The JSON of one limit of a listed bucket.
_LIMIT_COLUMNS: tuple[Column[ListedLimit], ...] = (
    *_LISTED_STATE_COLUMNS,
    Column(key="used_pct", value=lambda row: round(100 * (row.used_share or 0), 3)),
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
        "limited_by": list_or_none(bucket.limited_by),
        "last_limited_by": list_or_none(bucket.last_limited_by),
        "fits_after_seconds": seconds_json(bucket.fits_after_seconds),
        "last_rejected_at": bucket.recent and bucket.recent.last_rejected_at,
        "asked": plain_values(bucket.asked),
        "limits": [json_of(_LIMIT_COLUMNS, row) for row in bucket.rows if row.view is not None],
    }

"""The columns of usage, for tables, JSON, CSV and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from zae_limiter.models.usage import EntityUsage, UsageSnapshot, UsageSummary
from zae_limiter_ops.reports.columns import Column

Usage: TypeAlias = UsageSnapshot | EntityUsage


def window_columns(
    windows: Sequence[UsageSnapshot], title: str = "window"
) -> list[Column[UsageSnapshot]]:
    """Return the columns of windows; ``title`` is the head of their starts."""
    return [
        Column(
            title=title,
            key="window_start",
            csv="window_start",
            value=lambda window: window.window_start,
            format=lambda start: start.replace(":00:00Z", ":00Z"),
        ),
        Column(key="window_end", csv="window_end", value=lambda window: window.window_end),
        Column(key="window_type", csv="window_type", value=lambda window: window.window_type),
        Column(
            title="entity", key="entity_id", csv="entity_id", value=lambda window: window.entity_id
        ),
        Column(
            title="resource", key="resource", csv="resource", value=lambda window: window.resource
        ),
        *count_columns(windows),
        Column(
            key="rejected_through_children", value=lambda window: window.rejected_through_children
        ),
        Column(key="rejected_amounts", value=lambda window: window.rejected_amounts),
    ]


def entity_columns(usages: Sequence[EntityUsage], title: str) -> list[Column[EntityUsage]]:
    """Return the columns of the usage of entities; ``title`` is the head of their ids."""
    return [
        Column(title=title, key="entity_id", csv="entity_id", value=lambda usage: usage.entity_id),
        *count_columns(usages),
    ]


def count_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return the columns of tokens and calls."""
    return [
        Column(csv="total_events", value=lambda usage: usage.total_events),
        Column(key="counters", value=lambda usage: usage.counters),
        *limit_columns(usages),
        Column(title="calls>", key="total_events", value=lambda usage: usage.total_events),
        *CALL_COLUMNS,
        Column(key="through_children", value=lambda usage: usage.through_children),
        *through_children_columns(usages),
    ]


CALL_COLUMNS: tuple[Column[Usage], ...] = (
    Column(title="rejected>", key="rejected", csv="rejected", value=lambda usage: usage.rejected),
    Column(title="waited>", key="waited", csv="waited", value=lambda usage: usage.waited),
)


def limit_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return a column for the tokens of each limit."""
    return [_tokens_column(name) for name in _limit_names(usages)]


def _tokens_column(name: str) -> Column[Usage]:
    return Column(title=f"{name}>", csv=name, value=lambda usage: usage.counters.get(name, 0))


def through_children_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return the columns of the tokens that came through children.

    A table has one column for all limits, and none if there are no such tokens.
    """
    columns = [_through_column(name) for name in _limit_names(usages)]
    if any(any(usage.through_children.values()) for usage in usages):
        columns.append(
            Column(
                title="through children",
                value=lambda usage: usage.through_children,
                format=_through_text,
            )
        )
    return columns


def _through_column(name: str) -> Column[Usage]:
    return Column(
        csv=f"{name}_through_children", value=lambda usage: usage.through_children.get(name, 0)
    )


def _through_text(through_children: Mapping[str, int]) -> str:
    """Return ``rpm 3, tpm 120``."""
    used = {name: amount for name, amount in sorted(through_children.items()) if amount}
    return ", ".join(f"{name} {amount:,}" for name, amount in used.items())


def _limit_names(usages: Sequence[Usage]) -> list[str]:
    return sorted({name for usage in usages for name in usage.counters})


# --- summaries -------------------------------------------------------------------------------


class LimitTotal(NamedTuple):
    """The total of one limit in a summary."""

    summary: UsageSummary
    limit_name: str

    @property
    def through_children(self) -> int:
        """The tokens that parents used through their children."""
        return self.summary.through_children.get(self.limit_name, 0)


def limit_totals(summary: UsageSummary) -> list[LimitTotal]:
    """Return the total of each limit."""
    return [LimitTotal(summary, name) for name in summary.total]


def total_columns(totals: Sequence[LimitTotal], unit: str) -> list[Column[LimitTotal]]:
    """Return the columns of totals; ``unit`` is hour, day or month."""
    has_children = any(total.through_children for total in totals)
    return [
        Column(title="limit", csv="limit", value=lambda total: total.limit_name),
        Column(
            title="total>",
            csv="total",
            value=lambda total: total.summary.total[total.limit_name],
        ),
        Column(
            title="through children>" if has_children else None,
            value=lambda total: total.through_children,
        ),
        Column(
            title=f"average per {unit}>",
            csv="average",
            value=lambda total: total.summary.average[total.limit_name],
            format="{:,.1f}".format,
        ),
        Column(csv="through_children", value=lambda total: total.through_children),
    ]

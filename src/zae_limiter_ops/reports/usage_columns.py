"""The columns of usage, for tables, JSON, CSV and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.models.usage import EntityUsage, UsageSnapshot, UsageSummary, money_label
from zae_limiter_ops.reports.usage_series import CountedLimit
from zae_limiter_ops.views.columns import Column, as_text, plain_values
from zae_limiter_ops.views.formatting import list_or_none

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
        *REFUSAL_COLUMNS,
        Column(
            key="rejected_through_children", value=lambda window: window.rejected_through_children
        ),
        Column(key="rejected_amounts", value=lambda window: plain_values(window.rejected_amounts)),
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
        Column(key="counters", value=lambda usage: plain_values(usage.counters)),
        Column(key="currencies", value=lambda usage: usage.currencies),
        *limit_columns(usages),
        Column(title="calls>", key="calls", csv="calls", value=lambda usage: usage.calls),
        Column(key="total_events", value=lambda usage: usage.total_events),
        *call_columns(usages),
        Column(key="through_children", value=lambda usage: plain_values(usage.through_children)),
        *through_children_columns(usages),
    ]


CALL_COLUMNS: tuple[Column[Usage], ...] = (
    Column(
        title="rejected>",
        key="rejected_calls",
        csv="rejected_calls",
        value=lambda usage: usage.rejected_calls,
    ),
    Column(key="rejected", csv="rejected", value=lambda usage: usage.rejected),
    Column(title="waited>", key="waited", csv="waited", value=lambda usage: usage.waited),
)
SHADOWED_IN_DATA: Column[Usage] = Column(
    key="shadowed", csv="shadowed", value=lambda usage: usage.shadowed
)
SHADOWED_IN_TABLE: Column[Usage] = Column(title="shadowed>", value=lambda usage: usage.shadowed)


def call_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return the columns of rejected, waiting and shadowed calls.

    A table has a column for shadowed calls only if there are some: few programs use shadow mode.
    """
    columns = [*CALL_COLUMNS, SHADOWED_IN_DATA]
    if any(usage.shadowed for usage in usages):
        columns.append(SHADOWED_IN_TABLE)
    return columns


REFUSAL_COLUMNS: tuple[Column[UsageSnapshot], ...] = (
    Column(csv="limited_by", value=lambda window: window.limited_by),
    Column(key="limited_by", value=lambda window: list_or_none(window.limited_by)),
    Column(key="last_limited_by", value=lambda window: list_or_none(window.last_limited_by)),
    Column(key="last_rejected_at", value=lambda window: window.last_rejected_at),
)


def limit_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return a column for the tokens of each limit, or for the money of a budget."""
    return [_amounts_column(limit) for limit in _counted_limits(usages)]


def _amounts_column(limit: CountedLimit) -> Column[Usage]:
    label = money_label(limit.name, limit.currency)
    return Column(
        title=f"{label}>", csv=label, value=lambda usage: _amount(limit, usage, usage.counters)
    )


def _amount(limit: CountedLimit, usage: Usage, amounts: Mapping[str, Any]) -> Any:
    """Return the amount of a limit among those of a usage, which may count another unit."""
    if usage.currencies.get(limit.name, "") != limit.currency:
        return 0
    return amounts.get(limit.name, 0)


def through_children_columns(usages: Sequence[Usage]) -> list[Column[Usage]]:
    """Return the columns of the tokens that came through children.

    A table has one column for all limits, and none if there are no such tokens.
    """
    columns = [_through_column(limit) for limit in _counted_limits(usages)]
    if any(any(usage.through_children.values()) for usage in usages):
        columns.append(
            Column(
                title="through children",
                value=_through_text,
            )
        )
    return columns


def _through_column(limit: CountedLimit) -> Column[Usage]:
    return Column(
        csv=f"{money_label(limit.name, limit.currency)}_through_children",
        value=lambda usage: _amount(limit, usage, usage.through_children),
    )


def _through_text(usage: Usage) -> str:
    """Return ``rpm 3, usd 0.12 USD``."""
    used = {name: amount for name, amount in sorted(usage.through_children.items()) if amount}
    return ", ".join(
        f"{name} {with_unit(amount, usage.currencies.get(name))}" for name, amount in used.items()
    )


def with_unit(amount: Any, currency: str | None) -> str:
    """Return ``1,200``, or ``12.50 USD``."""
    return f"{as_text(amount)} {currency}" if currency else as_text(amount)


def _counted_limits(usages: Sequence[Usage]) -> list[CountedLimit]:
    return sorted(
        {
            CountedLimit(name, usage.currencies.get(name, ""))
            for usage in usages
            for name in usage.counters
        }
    )


# --- summaries -------------------------------------------------------------------------------


class LimitTotal(NamedTuple):
    """The total of one limit in a summary."""

    summary: UsageSummary
    limit_name: str

    @property
    def through_children(self) -> Any:
        """The tokens that parents used through their children."""
        return self.summary.through_children.get(self.limit_name, 0)

    @property
    def label(self) -> str:
        """The name of the limit, and the unit of money."""
        return money_label(self.limit_name, self.summary.currencies.get(self.limit_name))


def limit_totals(summary: UsageSummary) -> list[LimitTotal]:
    """Return the total of each limit."""
    return [LimitTotal(summary, name) for name in summary.total]


def _average_text(average: Any) -> str:
    return as_text(average) if isinstance(average, Decimal) else f"{average:,.1f}"


def total_columns(totals: Sequence[LimitTotal], unit: str) -> list[Column[LimitTotal]]:
    """Return the columns of totals; ``unit`` is hour, day or month."""
    has_children = any(total.through_children for total in totals)
    return [
        Column(title="limit", csv="limit", value=lambda total: total.label),
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
            format=_average_text,
        ),
        Column(csv="through_children", value=lambda total: total.through_children),
    ]

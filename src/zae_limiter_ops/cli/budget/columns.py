"""The columns of budgets, for tables, JSON and CSV."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zae_limiter_ops.cli.shared.console import bar
from zae_limiter_ops.views.columns import Column, as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
    from zae_limiter_ops.views.budgets import Budget

BAR_WIDTH = 10  # characters: half of a character is five per cent
# Colours by the beginning of a cell.
STYLES = {"spent": "red", "on ": "yellow"}


def budget_columns(namespaces: Namespaces) -> list[Column[Budget]]:
    """Return the columns; tables and CSV name the namespaces if the command reads all of them."""
    name = "namespace" if namespaces.are_all else None
    return [
        Column(title=name, key="namespace", csv=name, value=lambda each: each.namespace),
        *_NAMES,
        _money("used", "used", lambda each: each.used),
        _money("held", "held", lambda each: each.held),
        _money("left", "left", lambda each: each.left),
        _money("of", "amount", lambda each: Decimal(each.limit.capacity)),
        Column(title="unit", key="currency", csv="currency", value=lambda each: each.currency),
        Column(key="limit", csv="limit", value=lambda each: str(each.limit.state.limit)),
        Column(title="burn-down=", value=lambda each: bar(each.left_share, BAR_WIDTH)),
        Column(title="window>", value=lambda each: each.elapsed_share, format=_percent),
        *_SHARES,
        Column(
            title="per day>",
            key="per_day",
            csv="per_day",
            value=lambda each: each.per_day,
            format=_rounded,
        ),
        Column(title="next window", value=lambda each: each.limit.window_end, format=_time),
        *_MOMENTS,
        Column(title="spent=", value=_spent),
    ]


_NAMES: tuple[Column[Budget], ...] = (
    Column(
        title="entity", key="entity_id", csv="entity_id", value=lambda each: each.limit.entity_id
    ),
    Column(
        title="resource", key="resource", csv="resource", value=lambda each: each.limit.resource
    ),
    Column(
        title="budget",
        value=lambda each: each.limit.limit_name + (" (of calls)" if each.limit.from_call else ""),
    ),
    Column(key="limit_name", csv="limit_name", value=lambda each: each.limit.limit_name),
    Column(key="from_call", csv="from_call", value=lambda each: each.limit.from_call),
)


def _money(title: str, key: str, value: Callable[[Budget], Decimal | None]) -> Column[Budget]:
    return Column(title=f"{title}>", key=key, csv=key, value=value)


def _share(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 3)


_SHARES: tuple[Column[Budget], ...] = (
    Column(key="left_pct", csv="left_pct", value=lambda each: _share(each.left_share)),
    Column(key="elapsed_pct", csv="elapsed_pct", value=lambda each: _share(each.elapsed_share)),
)
_MOMENTS: tuple[Column[Budget], ...] = (
    Column(
        key="window_start",
        csv="window_start",
        value=lambda each: _iso(each.window_start),
    ),
    Column(key="window_end", csv="window_end", value=lambda each: _iso(each.limit.window_end)),
    Column(key="spent", csv="spent", value=lambda each: each.is_spent),
    Column(key="spent_at", csv="spent_at", value=lambda each: _iso(each.spent_at)),
)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M %Z}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _rounded(per_day: Decimal | None) -> str:
    """Return a rate in cents, or exactly if it is smaller."""
    if per_day is None:
        return ""
    return f"{per_day:,.2f}" if per_day >= Decimal("0.01") else as_text(per_day)


def _spent(budget: Budget) -> Any:
    """Return ``spent``, the day of the zone on which it will be, or that it lasts."""
    if budget.is_spent:
        return "spent"
    moment = budget.spent_at
    return "lasts" if moment is None else f"on {moment:%Y-%m-%d}"

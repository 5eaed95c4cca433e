"""A quota in words: the rest of its window, and the beginning of the next one."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from zae_limiter.models.limit import FirstUse, Limit
from zae_limiter.models.notation import format_period

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.status import LimitStatus


def describe_window(status: LimitStatus) -> str:
    """Return a message about a quota: the rest of its window, and when the next one begins."""
    asked = f"{_left(status.limit, status.available)}, {_number(status.requested)} requested"
    if status.held:
        asked += f", {_number(status.held)} held by calls in flight"
    if math.isinf(status.retry_after_seconds):
        return f"{asked}; it can never fit: ask for less"
    return asked + _next_window(status.window_end)


def describe_threshold(
    limit: Limit, percent: int, used: int | Decimal, window_end: datetime | None
) -> str:
    """Return a message about a threshold: the use of the window, and when the next one begins."""
    reached = f"{limit.name}: {percent} % of {_amount(limit)} used {_window_name(limit)}"
    return f"{reached}, {_number(used)} with calls in flight{_next_window(window_end)}"


def describe_exhausted(
    limit: Limit,
    requested: int | Decimal,
    available: int | Decimal,
    window_end: datetime | None,
) -> str:
    """Return a message about a quota that has rejected a call, and when its next window begins."""
    left = _left(limit, available)
    return f"{left}, {_number(requested)} requested{_next_window(window_end)}"


def describe_use(state: BucketState | LimitStatus) -> str:
    """Return the use of a quota: the rest of its window, the used and the held amount."""
    left = _left(state.limit, state.available)
    used = f"{left}, {_number(state.used)} used, {_number(state.held)} held"
    if state.window_end is None:
        return f"{used}; a window begins with the next call"
    return used + _next_window(state.window_end)


def _left(limit: Limit, available: int | Decimal) -> str:
    return f"{limit.name}: {_number(available)} of {_amount(limit)} left {_window_name(limit)}"


def _amount(limit: Limit) -> str:
    number = _number(limit.amount)
    return f"{number} {limit.currency}" if limit.currency else number


def _next_window(end: datetime | None) -> str:
    if end is None:
        return ""
    offset = end.strftime("%z")
    return f"; next window {end:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"


def _window_name(limit: Limit) -> str:
    window = limit.window
    if isinstance(window, FirstUse):
        return f"in the window of {format_period(window.seconds)} from its first use"
    assert window is not None
    name = "in this window" if window.every > 1 else f"this {window.unit}"
    return f"{name} ({window.zone})"


def _number(amount: int | Decimal | None) -> str:
    return f"{amount:,f}" if isinstance(amount, Decimal) else f"{amount or 0:,}"

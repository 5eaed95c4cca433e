"""A quota in words: the rest of its window, and the beginning of the next one."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from zae_limiter.models.limit import FirstUse, Limit
from zae_limiter.models.notation import format_period

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus


def describe_window(status: LimitStatus) -> str:
    """Return a message about a quota: the rest of its window, and when the next one begins."""
    limit = status.limit
    amount = (
        f"{_number(limit.amount)} {limit.currency}" if limit.currency else _number(limit.amount)
    )
    left = f"{limit.name}: {_number(status.available)} of {amount} left {_window_name(limit)}"
    asked = f"{left}, {_number(status.requested)} requested"
    if status.held:
        asked += f", {_number(status.held)} held by calls in flight"
    if math.isinf(status.retry_after_seconds):
        return f"{asked}; it can never fit: ask for less"
    if status.window_end is None:
        return asked
    offset = status.window_end.strftime("%z")
    return f"{asked}; next window {status.window_end:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"


def _window_name(limit: Limit) -> str:
    window = limit.window
    if isinstance(window, FirstUse):
        return f"in the window of {format_period(window.seconds)} from its first use"
    assert window is not None
    name = "in this window" if window.every > 1 else f"this {window.unit}"
    return f"{name} ({window.zone})"


def _number(amount: int | Decimal | None) -> str:
    return f"{amount:,f}" if isinstance(amount, Decimal) else f"{amount:,}"

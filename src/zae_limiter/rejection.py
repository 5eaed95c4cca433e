"""A rejection in words, as JSON and as a header."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zae_limiter.models.limit import FirstUse, Limit
from zae_limiter.models.notation import format_period

if TYPE_CHECKING:
    from zae_limiter.exceptions import RateLimitExceeded
    from zae_limiter.models.status import LimitStatus

# The seconds in a header if the amount can never fit. Web frameworks need a number, and with this
# one clients give up for a day instead of trying again at once.
NEVER_FITS_S = 86_400


def retry_after_header(error: RateLimitExceeded) -> str:
    """Return the wait in whole seconds; a day if the request can never fit."""
    seconds = error.retry_after_seconds
    return str(NEVER_FITS_S if math.isinf(seconds) else math.ceil(seconds))


def as_dict(error: RateLimitExceeded) -> dict[str, Any]:
    """Return values for the JSON response of an API; an infinite wait is None."""
    seconds = error.retry_after_seconds
    return {
        "error": "rate_limit_exceeded",
        "message": str(error),
        "retry_after_seconds": None if math.isinf(seconds) else seconds,
        "limits": [status.as_dict() for status in error.statuses],
    }


def description(error: RateLimitExceeded) -> str:
    """Return a message that names the limit with the longest wait, and says what to do."""
    primary = error.primary_violation
    if primary is None:
        return "rate limit exceeded"
    needs = f"{primary.limit_name} needs {primary.requested}, has {primary.available}"
    if primary.paused_seconds:
        needs = f"its bucket is paused for {primary.paused_seconds:g} s more"
    elif primary.limit.is_quota:
        return (
            f"rate limit exceeded for {primary.entity_id!r} on {primary.resource!r}: "
            f"{describe_window(primary)}"
        )
    if math.isinf(primary.retry_after_seconds):
        advice = f"it can never fit (capacity {primary.limit.capacity}): ask for less"
    else:
        advice = f"retry in {primary.retry_after_seconds:g} s"
    return (
        f"rate limit exceeded for {primary.entity_id!r} on {primary.resource!r}: {needs}; {advice}"
    )


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

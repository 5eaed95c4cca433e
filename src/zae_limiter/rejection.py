"""A rejection in words, as JSON and as a header."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
    seconds, limited_by = error.retry_after_seconds, error.limited_by
    return {
        "error": "rate_limit_exceeded",
        "message": str(error),
        "retry_after_seconds": None if math.isinf(seconds) else seconds,
        "limited_by": None if limited_by is None else list(limited_by),
        "limits": [status.as_dict() for status in error.statuses],
    }


def description(error: RateLimitExceeded) -> str:
    """Return a message that names the limit with the longest wait, and says what to do."""
    primary = error.primary_violation
    if primary is None:
        return "rate limit exceeded"
    if primary.is_denied:
        return _denial(primary)
    needs = f"{primary.limit_name} needs {primary.requested}, has {primary.available}"
    if primary.paused_seconds:
        needs = f"its bucket is paused for {primary.paused_seconds:g} s more"
    elif primary.limit.is_quota:
        return (
            f"rate limit exceeded for {primary.entity_id!r} on {primary.resource!r}: "
            f"{primary.window_text()}"
        )
    if math.isinf(primary.retry_after_seconds):
        advice = f"it can never fit (capacity {primary.limit.capacity}): ask for less"
    else:
        advice = f"retry in {primary.retry_after_seconds:g} s"
    return (
        f"rate limit exceeded for {primary.entity_id!r} on {primary.resource!r}: {needs}; {advice}"
    )


def _denial(status: LimitStatus) -> str:
    """Return a message for a bucket that an operator has denied."""
    who = f"{status.entity_id!r} on {status.resource!r}"
    if status.mode_until is None:
        return f"{who} is denied; ask the operator, who has set its mode"
    until = status.mode_until.isoformat().replace("+00:00", "Z")
    return f"{who} is denied until {until}; retry in {status.retry_after_seconds:g} s"

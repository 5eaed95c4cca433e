"""A rejection in words, as JSON and as a header: for users, when they ask."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter.exceptions import RateLimitExceeded

# What a header says where the amount can never fit: web frameworks need a text, and clients that
# obey it give up for a day instead of trying again at once.
NEVER_FITS_S = 86_400


def retry_after_header(error: RateLimitExceeded) -> str:
    """Return whole seconds; a day if waiting can never help."""
    seconds = error.retry_after_seconds
    return str(NEVER_FITS_S if math.isinf(seconds) else math.ceil(seconds))


def as_dict(error: RateLimitExceeded) -> dict[str, Any]:
    """Return strict JSON for the response of an API: an infinite wait is null."""
    seconds = error.retry_after_seconds
    return {
        "error": "rate_limit_exceeded",
        "message": str(error),
        "retry_after_seconds": None if math.isinf(seconds) else seconds,
        "limits": [status.as_dict() for status in error.statuses],
    }


def description(error: RateLimitExceeded) -> str:
    """Return which limit it is, what it lacks, and what to do."""
    primary = error.primary_violation
    if primary is None:
        return "rate limit exceeded"
    needs = f"{primary.limit_name} needs {primary.requested}, has {primary.available}"
    if primary.paused_seconds:
        needs = f"its bucket is paused for {primary.paused_seconds:g} s more"
    if math.isinf(primary.retry_after_seconds):
        advice = f"it can never fit (capacity {primary.limit.capacity}): ask for less"
    else:
        advice = f"retry in {primary.retry_after_seconds:g} s"
    return (
        f"rate limit exceeded for {primary.entity_id!r} on {primary.resource!r}: {needs}; {advice}"
    )

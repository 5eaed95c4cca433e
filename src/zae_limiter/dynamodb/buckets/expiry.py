"""The TTL of a bucket item: never before it is full again and its last hour of usage outdated."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.admission.image import BucketImage, full_at_ms
from zae_limiter.admission.in_force import CENTURY_MS, InForce
from zae_limiter.admission.moves import Move


def expires_ms(image: BucketImage, in_force: InForce, now_ms: int, usage_ms: int = 0) -> int | None:
    """Return when the bucket may expire; None for never. ``usage_ms`` is how long usage is kept."""
    until = in_force.extended_ttl(image.expires_ms, now_ms, usage_ms)
    if until is None:
        return None
    full_ms = full_at_ms(image)
    return max(until, full_ms) if full_ms - now_ms < CENTURY_MS else None


def is_too_early(image: BucketImage) -> bool:
    """Tell whether the bucket would expire before it is full."""
    return image.expires_ms is not None and image.expires_ms < full_at_ms(image)


def after(image: BucketImage, moves: Iterable[Move]) -> BucketImage:
    """Return the bucket as it is once the moves are made."""
    limits = dict(image.limits)
    for move in moves:
        state = limits[move.key]
        limits[move.key] = state._replace(
            balance_milli=move.applied(state.balance_milli),
            consumed_milli=state.consumed_milli + move.consumed_milli,
        )
    return image._replace(limits=limits)

"""When a bucket's item may be forgotten: never before it is full again, debts included."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.admission.charge import CENTURY_MS, kept_until
from zae_limiter.admission.image import BucketImage, full_at_ms
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.moves import Move


def expires_ms(image: BucketImage, in_force: InForce, now_ms: int) -> int | None:
    """When the bucket may be forgotten; None for never."""
    until = kept_until(image.expires_ms, in_force, now_ms)
    if until is None:
        return None
    full_ms = full_at_ms(image)
    return max(until, full_ms) if full_ms - now_ms < CENTURY_MS else None


def is_time_to_fill(
    until_ms: int | None, image: BucketImage, in_force: InForce, now_ms: int
) -> bool:
    """Whether a bucket that owes nothing is full by then; told without looking at its levels."""
    return until_ms is None or (
        until_ms - now_ms >= in_force.fill_ms and len(image.limits) == len(in_force.keys)
    )


def is_too_early(image: BucketImage) -> bool:
    """Whether the store might forget the bucket while something is missing in it."""
    return image.expires_ms is not None and image.expires_ms < full_at_ms(image)


def after(image: BucketImage, moves: Iterable[Move]) -> BucketImage:
    """The bucket as it should be once the moves are made."""
    limits = dict(image.limits)
    for move in moves:
        state = limits[move.key]
        limits[move.key] = state._replace(
            balance_milli=move.applied(state.balance_milli),
            consumed_milli=state.consumed_milli + move.consumed_milli,
        )
    return image._replace(limits=limits)

"""Splitting a shard in two and merging two into one, so that not a millitoken comes or goes.

A balance counts from the epoch, and over any time both halves of a shard bring together what the
shard would have brought. So a balance is conserved exactly if it is cut into two parts, and if two
are added up; only what a shard has run over is cut off, as by any other write. Each shard's level
is rounded down by itself: that hides less than a millitoken per shard, and merging shows it again.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    full_balance,
)
from zae_limiter.admission.moves import Move

NEARLY_EMPTY = 8  # at most one eighth full


class Halves(NamedTuple):
    """What a split does to the shard itself, and what the new one begins with."""

    kept: list[Move]
    given: dict[str, LimitState]


def split(image: BucketImage, now_ms: int) -> Halves:
    """Cut a shard in two. The bounds let others take from it meanwhile, but not give."""
    halves = Halves([], {})
    for key, state in image.limits.items():
        kept, balance = _divided(key, state, now_ms)
        halves.kept.append(kept)
        halves.given[key] = LimitState(balance, halved(state.rate)[1])
    return halves


def merge(survivor: BucketImage, sibling: BucketImage, now_ms: int) -> list[Move]:
    """What the survivor gains if nobody has written to the sibling since it was read."""
    moves = []
    for key, state in survivor.limits.items():
        gained = _within(sibling.limits[key], now_ms)
        full = full_balance(state.rate, now_ms)
        if state.balance_milli > full:
            moves.append(Move(key, full, None, 0, full + gained))
        else:
            moves.append(Move(key, None, full, gained, None))
    return moves


def halved(rate: Rate) -> tuple[Rate, Rate]:
    """The rates of both halves; the first one keeps the odd millitoken."""
    capacity, refill, period = rate
    return (
        Rate(capacity - capacity // 2, refill, 2 * period),
        Rate(capacity // 2, refill, 2 * period),
    )


def _divided(key: str, state: LimitState, now_ms: int) -> tuple[Move, int]:
    """The part of a split for one limit: what becomes of its balance, and the new one's."""
    balance, rate = state.balance_milli, state.rate
    here, there = halved(rate)
    full_here, full_there = full_balance(here, now_ms), full_balance(there, now_ms)
    if balance >= full_here + full_there:
        return Move(key, full_here + full_there, None, 0, full_here), full_there
    accrued = accrued_since_epoch(rate, now_ms)
    given = _given(balance + accrued, rate)
    new = given - accrued_since_epoch(there, now_ms)
    still_there = given - accrued if balance + accrued >= 0 else None
    return Move(key, still_there, balance, -new, None), new


def _given(level_milli: int, rate: Rate) -> int:
    """Half; of next to nothing, nothing: who takes the rest meanwhile would forbid the split."""
    if 0 <= level_milli * NEARLY_EMPTY <= rate.capacity_milli:
        return 0
    return level_milli // 2


def _within(state: LimitState, now_ms: int) -> int:
    """A balance without what has run over."""
    return min(state.balance_milli, full_balance(state.rate, now_ms))

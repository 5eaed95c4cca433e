"""Splits and merges of shards, which neither create nor lose a millitoken.

A balance counts from the epoch, and over any time the two halves of a shard together accrue as many
tokens as the shard would have accrued. So a split divides the balance, and a merge adds two
balances. Only an overflow is cut off, as by any other write. The level of each shard is rounded
down, which hides less than a millitoken per shard until a merge.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    full_balance,
    is_quota,
    is_split,
)
from zae_limiter.admission.moves import Move
from zae_limiter.admission.windows import QuotaState

NEARLY_EMPTY = 8  # a shard is nearly empty if it is at most 1/8 full


class Halves(NamedTuple):
    """The moves of a split for the shard itself, and the limits of the new shard."""

    kept: list[Move]
    given: dict[str, LimitState]


def split(image: BucketImage, now_ms: int) -> Halves:
    """Split a shard. The bounds of the moves allow concurrent charges, but not credits."""
    halves = Halves([], {})
    for key, state in image.limits.items():
        here, there = halved(state.rate)
        if here == state.rate:  # the shard keeps all slots, and all of a quota
            halves.given[key] = empty_share(there)
            continue
        kept, balance = _divided(key, state, now_ms)
        halves.kept.append(kept)
        halves.given[key] = LimitState(balance, there)
    return halves


def merge(survivor: BucketImage, sibling: BucketImage, now_ms: int) -> list[Move]:
    """Return the moves of the shard that survives a merge.

    They are right only if the sibling was not written to since it was read.
    """
    moves = []
    for key, state in survivor.limits.items():
        if not is_split(state.rate):  # the first shard has all of it, and it survives every merge
            continue
        gained = _without_overflow(sibling.limits[key], now_ms)
        full = full_balance(state.rate, now_ms)
        if state.balance_milli > full:
            moves.append(Move(key, full, None, 0, full + gained))
        else:
            moves.append(Move(key, None, full, gained, None))
    return moves


def halved(rate: Rate) -> tuple[Rate, Rate]:
    """Return the rates of both halves. The first half keeps an odd millitoken, and all slots."""
    if not is_split(rate):
        return rate, rate._replace(capacity_milli=0)
    capacity, refill, period, terms = rate
    return (
        Rate(capacity - capacity // 2, refill, 2 * period, terms),
        Rate(capacity // 2, refill, 2 * period, terms),
    )


def empty_share(rate: Rate) -> LimitState:
    """Return the share of a shard in a limit of which the first shard has all."""
    return LimitState(0, rate, quota=QuotaState() if is_quota(rate) else None)


def _divided(key: str, state: LimitState, now_ms: int) -> tuple[Move, int]:
    """Split one limit: return the move of the shard, and the balance of the new shard."""
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
    """Return the tokens for the new shard: half of the level, or 0 if the shard is nearly empty.

    The split is refused if concurrent charges take more than the other half, which would often
    happen in a shard that is nearly empty.
    """
    if 0 <= level_milli * NEARLY_EMPTY <= rate.capacity_milli:
        return 0
    return level_milli // 2


def _without_overflow(state: LimitState, now_ms: int) -> int:
    """Return the balance of a limit without its overflow."""
    return min(state.balance_milli, full_balance(state.rate, now_ms))

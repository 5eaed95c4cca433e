"""Moves: the changes that a write makes to balances, and the bounds within which they are exact.

They serve stores that write without reading first. The writer guesses whether the limit has
overflowed since it was last seen: if not, the write adds to the balance (plain); if so, it sets the
balance (clamp). Either form comes with bounds on the stored balance under which it is exact, so
that the store refuses a wrong guess and never over-admits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    full_balance,
    is_quota,
    is_slots,
)


@dataclass(slots=True)
class Wanted:
    """Amounts for one limit in one write: charged, owed (debts) and returned (credits).

    Credits are applied first, then debts, then charges. ``asked`` is True if a charge is among
    them, even a charge of 0: then the limit must not be in debt. ``needed_milli`` is the level
    that the charges require at the stamp; None means their sum, reservations require less.
    ``uncounted_milli`` is no longer counted as consumed, although it is not given back.
    """

    charged_milli: int = 0
    owed_milli: int = 0
    returned_milli: int = 0
    asked: bool = False
    needed_milli: int | None = None
    uncounted_milli: int = 0

    @classmethod
    def charge(cls, amount_milli: int) -> Wanted:
        """Return the amounts of a single charge."""
        return cls(amount_milli, 0, 0, True)

    @property
    def taken_milli(self) -> int:
        return self.charged_milli + self.owed_milli

    @property
    def net_milli(self) -> int:
        """The amount that the write adds to the net consumption of the limit."""
        return self.taken_milli - self.returned_milli - self.uncounted_milli


@dataclass(slots=True)
class Move:
    """The change of one limit by a write: ``add`` to the balance, or ``put`` another in its place.

    For a move that takes tokens these are the branches plain and clamp. The write is refused unless
    the balance is at least ``low`` and at most ``high``; None means that there is no such bound.
    """

    key: str
    low: int | None
    high: int | None
    add: int
    put: int | None
    consumed_milli: int = 0

    def applied(self, balance_milli: int) -> int:
        """Return the balance after the write."""
        return balance_milli + self.add if self.put is None else self.put


def move(key: str, rate: Rate, wanted: Wanted, now_ms: int, *, overflowing: bool) -> Move:
    """Return the move for a limit that is ``overflowing``, or for one that is not."""
    return _branch(key, rate, wanted, accrued_since_epoch(rate, now_ms), overflowing)


def read_move(key: str, state: LimitState, wanted: Wanted, now_ms: int) -> Move:
    """Return the move for a limit that was read just now."""
    overflowing = surplus_milli(state, now_ms) + wanted.returned_milli > 0
    return move(key, state.rate, wanted, now_ms, overflowing=overflowing)


def guessed_move(
    key: str,
    state: LimitState,
    wanted: Wanted,
    now_ms: int,
    age_ms: int,
    others_milli_per_s: int,
) -> Move:
    """Return the move for a limit that was seen ``age_ms`` ago and that other clients use, too."""
    rate = state.rate
    accrued = accrued_since_epoch(rate, now_ms)
    surplus = state.balance_milli + accrued + wanted.returned_milli - rate.capacity_milli
    overflowing = surplus > 0 and _outlasts(surplus, rate, age_ms, others_milli_per_s)
    return _branch(key, rate, wanted, accrued, overflowing)


def _branch(key: str, rate: Rate, wanted: Wanted, accrued: int, overflowing: bool) -> Move:
    """Return the move of one branch: a clamp if the limit is overflowing, else a plain one."""
    taken, returned = wanted.charged_milli + wanted.owed_milli, wanted.returned_milli
    consumed = taken - returned - wanted.uncounted_milli
    full = rate.capacity_milli - accrued
    needed = taken  # the level that the write requires
    if wanted.needed_milli is not None:
        needed = wanted.needed_milli + wanted.owed_milli
    if overflowing and taken and (not wanted.asked or needed <= rate.capacity_milli):
        # clamp: the surplus is cut off before anything is taken
        low, put = full - returned, full - taken
        return Move(key, low, None, 0, put, consumed)
    low_if_asked = needed - returned - accrued if wanted.asked else None  # enough tokens
    high = full - returned if taken else None  # not overfull
    return Move(key, low_if_asked, high, returned - taken, None, consumed)


def added_move(key: str, amount_milli: int) -> Move:
    """Return the move that adds an amount to the balance, whatever the balance is."""
    return Move(key=key, low=None, high=None, add=amount_milli, put=None)


def first_move(key: str, rate: Rate, wanted: Wanted, now_ms: int) -> Move:
    """Return the move for a limit that is absent or full, which are the same."""
    full = full_balance(rate, now_ms)
    taken = wanted.taken_milli
    used = 0 if is_slots(rate) else wanted.net_milli  # slots are no usage
    return Move(key=key, low=full, high=None, add=0, put=full - taken, consumed_milli=used)


def top_up_move(key: str, state: LimitState, amount_milli: int, now_ms: int) -> Move:
    """Return the move that adds tokens, up to the capacity; ``add`` is the amount really added.

    A charge that is committed after ``state`` was read stays charged.
    """
    full = full_balance(state.rate, now_ms)
    if state.balance_milli >= full:
        # The move cuts off the overflow and adds nothing.
        return Move(key=key, low=full, high=None, add=0, put=full)
    added = min(amount_milli, full - state.balance_milli)
    return Move(key=key, low=None, high=full - added, add=added, put=None)


def reset_move(key: str, state: LimitState, now_ms: int) -> Move:
    """Return the move that fills a limit; ``add`` is the amount that was forgiven."""
    missing = full_balance(state.rate, now_ms) - state.balance_milli
    return top_up_move(key, state, missing, now_ms)


def rebase_move(key: str, state: LimitState, rate: Rate, now_ms: int) -> Move:
    """Return the move to another rate: the level stays, a larger capacity fills up over time.

    Slots that are held stay held. A limit that becomes a limit on calls in flight, or stops being
    one, begins full.
    """
    assert not is_quota(state.rate), "see quotas.rebase_quota"
    assert not is_quota(rate), "see quotas.rebase_quota"
    if is_slots(state.rate) != is_slots(rate):
        return Move(key=key, low=None, high=None, add=0, put=full_balance(rate, now_ms))
    if is_slots(rate):
        return added_move(key, rate.capacity_milli - state.rate.capacity_milli)
    before, after = accrued_since_epoch(state.rate, now_ms), accrued_since_epoch(rate, now_ms)
    smaller = min(state.rate.capacity_milli, rate.capacity_milli)
    if state.balance_milli + before > smaller:
        return Move(key=key, low=smaller - before, high=None, add=0, put=smaller - after)
    return Move(key=key, low=None, high=smaller - before, add=before - after, put=None)


def surplus_milli(state: LimitState, now_ms: int) -> int:
    """Return by how much a limit has overflowed; negative if it is not full."""
    rate = state.rate
    return state.balance_milli + accrued_since_epoch(rate, now_ms) - rate.capacity_milli


def _outlasts(surplus: int, rate: Rate, age_ms: int, others_milli_per_s: int) -> bool:
    """Tell whether a surplus probably remains after the charges of other clients.

    The answer is False if they take two thirds of the refill or more: a busy limit is seldom full.
    """
    if not others_milli_per_s:
        return True
    if 3 * others_milli_per_s * rate.period_ms >= 2 * rate.refill_milli * 1000:
        return False
    return surplus > others_milli_per_s * max(age_ms, 0) // 1000


def after(image: BucketImage, moves: Iterable[Move]) -> BucketImage:
    """Return the bucket as it is once the moves are made."""
    limits = dict(image.limits)
    for each in moves:
        state = limits[each.key]
        limits[each.key] = replace(
            state,
            balance_milli=each.applied(state.balance_milli),
            consumed_milli=state.consumed_milli + each.consumed_milli,
        )
    return image._replace(limits=limits)

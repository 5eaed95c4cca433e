"""What a write does to the balance of one limit, and the bounds within which that is exact.

For stores that write without reading first. The writer guesses whether the limit has overflowed
since it was last seen: if not, the write adds to the balance (plain); if so, it sets the balance
(clamp). Either form comes with bounds on the stored balance under which it is exact, so that the
store refuses a wrong guess and never over-admits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.admission.image import (
    EPOCH_MS,
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    full_balance,
    is_slots,
)
from zae_limiter.bucket import accrued_milli


class Wanted(NamedTuple):
    """Amounts for one limit in one write: charged, owed (debts) and returned (credits).

    Credits are applied first, then debts, then charges. ``asked`` is True if a charge is among
    them, even a charge of 0: then the limit must not be in debt. ``needed_milli`` is the level
    that the charges require at the stamp, if not their sum: less if some of them are reservations.
    ``uncounted_milli`` is no longer counted as consumed, though it is not given back.
    """

    charged_milli: int = 0
    owed_milli: int = 0
    returned_milli: int = 0
    asked: bool = False
    needed_milli: int | None = None
    uncounted_milli: int = 0

    @property
    def taken_milli(self) -> int:
        return self.charged_milli + self.owed_milli

    @property
    def net_milli(self) -> int:
        """What the write adds to the net consumption of the limit."""
        return self.taken_milli - self.returned_milli - self.uncounted_milli


class Move(NamedTuple):
    """What a write does to one limit: ``add`` to the balance, or ``put`` another in its place.

    Of a move that takes tokens these are the branches plain and clamp. The write is refused unless
    the balance is at least ``low`` and at most ``high``, where they are given.
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
    return _wanted_branch(key, rate, accrued_since_epoch(rate, now_ms), overflowing, wanted)


def read_move(key: str, state: LimitState, wanted: Wanted, now_ms: int) -> Move:
    """Return the move for a limit that was read just now."""
    overflowing = surplus_milli(state, now_ms) + wanted.returned_milli > 0
    return move(key, state.rate, wanted, now_ms, overflowing=overflowing)


def charge_moves(
    limits: Mapping[str, LimitState],
    amounts_milli: Mapping[str, int],
    now_ms: int,
    age_ms: int,
    others_milli_per_s: Mapping[str, int],
    *,
    reject: bool = False,
) -> tuple[list[Move], bool]:
    """Plan a charge on a bucket that was seen ``age_ms`` ago: its moves, and whether it fits.

    It fits if every limit holds its amount, provided that no other client has written since. With
    ``reject`` a charge that does not fit is not planned to the end: it is not to be sent.
    """
    moves, fits = [], True
    since_epoch_ms = now_ms - EPOCH_MS
    for key, amount in amounts_milli.items():
        balance, rate, _, _ = limits[key]
        capacity, refill, period_ms = rate
        accrued = accrued_milli(since_epoch_ms, refill, period_ms)
        surplus = balance + accrued - capacity
        if amount > (balance + accrued if surplus < 0 else capacity):
            fits = False
            if reject:
                break
        overflowing = surplus > 0 and _outlasts(
            surplus, rate, age_ms, others_milli_per_s.get(key, 0)
        )
        moves.append(_branch(key, rate, accrued, overflowing, taken=amount))
    return moves, fits


def guessed_move(
    key: str,
    state: LimitState,
    wanted: Wanted,
    now_ms: int,
    age_ms: int,
    others_milli_per_s: int,
) -> Move:
    """Return the move for a limit that was seen ``age_ms`` ago and that other clients use, too."""
    balance, rate, _, _ = state
    accrued = accrued_since_epoch(rate, now_ms)
    surplus = balance + accrued + wanted.returned_milli - rate.capacity_milli
    overflowing = surplus > 0 and _outlasts(surplus, rate, age_ms, others_milli_per_s)
    return _wanted_branch(key, rate, accrued, overflowing, wanted)


def _wanted_branch(key: str, rate: Rate, accrued: int, overflowing: bool, wanted: Wanted) -> Move:
    charged, owed, returned, asked, needed, uncounted = wanted
    made = _branch(
        key,
        rate,
        accrued,
        overflowing,
        taken=charged + owed,
        returned=returned,
        asked=asked,
        needed=None if needed is None else needed + owed,
    )
    return made._replace(consumed_milli=made.consumed_milli - uncounted) if uncounted else made


def _branch(
    key: str,
    rate: Rate,
    accrued: int,
    overflowing: bool,
    *,
    taken: int,
    returned: int = 0,
    asked: bool = True,
    needed: int | None = None,
) -> Move:
    """Return the move of the branch: a clamp write if the limit overflows, else a plain one.

    ``needed`` is the level that it requires, if not all that is taken.
    """
    capacity = rate.capacity_milli
    full = capacity - accrued
    if needed is None:
        needed = taken
    if overflowing and taken and (not asked or needed <= capacity):
        # clamp: the surplus is cut off before anything is taken
        return Move(
            key=key,
            low=full - returned,
            high=None,
            add=0,
            put=full - taken,
            consumed_milli=taken - returned,
        )
    enough = needed - returned - accrued if asked else None
    not_overfull = full - returned if taken else None
    return Move(
        key=key,
        low=enough,
        high=not_overfull,
        add=returned - taken,
        put=None,
        consumed_milli=taken - returned,
    )


def first_move(key: str, rate: Rate, wanted: Wanted, now_ms: int) -> Move:
    """Return the move for a limit that is absent or full, which are the same."""
    full = full_balance(rate, now_ms)
    taken = wanted.taken_milli
    used = 0 if is_slots(rate) else taken - wanted.returned_milli  # slots are no usage
    return Move(key, full, None, 0, full - taken, used)


def top_up_move(key: str, state: LimitState, amount_milli: int, now_ms: int) -> Move:
    """Return the move that adds tokens, up to the capacity; ``add`` is what was really added.

    A charge that is committed after ``state`` was read stays charged.
    """
    full = full_balance(state.rate, now_ms)
    if state.balance_milli >= full:
        return Move(key, full, None, 0, full)  # cuts off the overflow, adds nothing
    added = min(amount_milli, full - state.balance_milli)
    return Move(key, None, full - added, added, None)


def reset_move(key: str, state: LimitState, now_ms: int) -> Move:
    """Return the move that fills a limit; ``add`` is what was forgiven."""
    missing = full_balance(state.rate, now_ms) - state.balance_milli
    return top_up_move(key, state, missing, now_ms)


def rebase_move(key: str, state: LimitState, rate: Rate, now_ms: int) -> Move:
    """Return the move to another rate: the level stays, a larger capacity fills up over time.

    Of slots, those that are held stay held. A limit that becomes one on calls in flight, or stops
    being one, begins full.
    """
    if is_slots(state.rate) != is_slots(rate):
        return Move(key, None, None, 0, full_balance(rate, now_ms))
    if is_slots(rate):
        return Move(key, None, None, rate.capacity_milli - state.rate.capacity_milli, None)
    before, after = accrued_since_epoch(state.rate, now_ms), accrued_since_epoch(rate, now_ms)
    smaller = min(state.rate.capacity_milli, rate.capacity_milli)
    if state.balance_milli + before > smaller:
        return Move(key, smaller - before, None, 0, smaller - after)
    return Move(key, None, smaller - before, before - after, None)


def held_milli(state: LimitState, returned_milli: int, now_ms: int) -> int:
    """Return the level after a credit."""
    rate = state.rate
    value = state.balance_milli + accrued_since_epoch(rate, now_ms) + returned_milli
    return min(rate.capacity_milli, value)


def surplus_milli(state: LimitState, now_ms: int) -> int:
    """Return by how much a limit has overflowed; negative if it is not full."""
    rate = state.rate
    return state.balance_milli + accrued_since_epoch(rate, now_ms) - rate.capacity_milli


def _outlasts(surplus: int, rate: Rate, age_ms: int, others_milli_per_s: int) -> bool:
    """Whether other clients are expected to have left something of a surplus.

    Not if they take two thirds of what accrues, or more: a busy limit is seldom full.
    """
    if 3 * others_milli_per_s * rate.period_ms >= 2 * rate.refill_milli * 1000:
        return False
    return surplus > others_milli_per_s * max(age_ms, 0) // 1000


def after(image: BucketImage, moves: Iterable[Move]) -> BucketImage:
    """Return the bucket as it is once the moves are made."""
    limits = dict(image.limits)
    for each in moves:
        state = limits[each.key]
        limits[each.key] = state._replace(
            balance_milli=each.applied(state.balance_milli),
            consumed_milli=state.consumed_milli + each.consumed_milli,
        )
    return image._replace(limits=limits)

"""What a write does to the balance of one limit, and between which bounds that is right.

For stores that write without reading first: whoever writes guesses whether the limit has run over
since it was last seen. Either guess comes with bounds under which it is exact, so a wrong one is
refused by the store and never over-admits.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.admission.image import LimitState, Rate, accrued_since_epoch, full_balance


class Wanted(NamedTuple):
    """Amounts for one limit in one write; credits come first, then debts, then charges.

    ``asked`` says that a charge is among them, even one of 0: the limit must not be in debt.
    """

    charged_milli: int = 0
    owed_milli: int = 0
    returned_milli: int = 0
    asked: bool = False

    @property
    def taken_milli(self) -> int:
        return self.charged_milli + self.owed_milli


class Move(NamedTuple):
    """One limit's part of a write: ``add`` to the balance or ``put`` another in its place.

    The balance must be at least ``low`` and at most ``high``, where they are given.
    """

    key: str
    low: int | None
    high: int | None
    add: int
    put: int | None
    consumed_milli: int = 0

    def applied(self, balance_milli: int) -> int:
        """The balance after it."""
        return balance_milli + self.add if self.put is None else self.put


def move(key: str, rate: Rate, wanted: Wanted, now_ms: int, *, overflowing: bool) -> Move:
    """The part of a write that is right if the limit is ``overflowing``, or if it is not."""
    charged, owed, returned, asked = wanted
    accrued = accrued_since_epoch(rate, now_ms)
    return _branch(key, rate, accrued, charged + owed, returned, asked, overflowing)


def read_move(key: str, state: LimitState, wanted: Wanted, now_ms: int) -> Move:
    """The same, in the branch of a limit that was read just now."""
    overflowing = surplus_milli(state, now_ms) + wanted.returned_milli > 0
    return move(key, state.rate, wanted, now_ms, overflowing=overflowing)


def guessed_move(
    key: str,
    state: LimitState,
    taken: int,
    returned: int,
    asked: bool,
    now_ms: int,
    age_ms: int,
    others_milli_per_s: int,
) -> Move:
    """The same for a limit that was seen ``age_ms`` ago and that others use, too."""
    balance, rate, _, _ = state
    accrued = accrued_since_epoch(rate, now_ms)
    surplus = balance + accrued + returned - rate.capacity_milli
    overflowing = surplus > 0 and _outlasts(surplus, rate, age_ms, others_milli_per_s)
    return _branch(key, rate, accrued, taken, returned, asked, overflowing)


def _branch(
    key: str, rate: Rate, accrued: int, taken: int, returned: int, asked: bool, overflowing: bool
) -> Move:
    capacity = rate.capacity_milli
    full = capacity - accrued
    if overflowing and taken and (not asked or taken <= capacity):
        # the surplus is cut before anything is taken
        return Move(key, full - returned, None, 0, full - taken, taken - returned)
    enough = taken - returned - accrued if asked else None
    not_overfull = full - returned if taken else None
    return Move(key, enough, not_overfull, returned - taken, None, taken - returned)


def first_move(key: str, rate: Rate, wanted: Wanted, now_ms: int) -> Move:
    """The part of a write to a limit that is absent or full, which are the same."""
    full = full_balance(rate, now_ms)
    taken = wanted.taken_milli
    return Move(key, full, None, 0, full - taken, taken - wanted.returned_milli)


def top_up_move(key: str, state: LimitState, amount_milli: int, now_ms: int) -> Move:
    """Add tokens, up to the capacity."""
    room = full_balance(state.rate, now_ms) - amount_milli
    if state.balance_milli > room:
        return Move(key, room, None, 0, room + amount_milli)
    return Move(key, None, room, amount_milli, None)


def reset_move(key: str, state: LimitState, now_ms: int) -> Move:
    """Fill it, whatever it holds."""
    return Move(key, None, None, 0, full_balance(state.rate, now_ms))


def turn(key: str, state: LimitState, rate: Rate, now_ms: int) -> Move:
    """Keep the level and go on at another rate; a larger capacity fills up over time."""
    before, after = accrued_since_epoch(state.rate, now_ms), accrued_since_epoch(rate, now_ms)
    most = min(state.rate.capacity_milli, rate.capacity_milli)
    if state.balance_milli + before > most:
        return Move(key, most - before, None, 0, most - after)
    return Move(key, None, most - before, before - after, None)


def held_milli(state: LimitState, returned_milli: int, now_ms: int) -> int:
    """What can be taken once something was returned."""
    rate = state.rate
    value = state.balance_milli + accrued_since_epoch(rate, now_ms) + returned_milli
    return min(rate.capacity_milli, value)


def surplus_milli(state: LimitState, now_ms: int) -> int:
    """How far a limit has run over its capacity; negative if it has not."""
    rate = state.rate
    return state.balance_milli + accrued_since_epoch(rate, now_ms) - rate.capacity_milli


def _outlasts(surplus: int, rate: Rate, age_ms: int, others_milli_per_s: int) -> bool:
    """Whether others are expected to have left something of a surplus.

    Not if they take two thirds of what accrues, or more: a busy limit is seldom full.
    """
    if 3 * others_milli_per_s * rate.period_ms >= 2 * rate.refill_milli * 1000:
        return False
    return surplus > others_milli_per_s * max(age_ms, 0) // 1000

"""Moves: the changes that a write makes to balances, and the bounds within which they are exact.

They serve stores that write without reading first. The writer guesses whether the limit has
overflowed since it was last seen: if not, the write adds to the balance (plain); if so, it sets the
balance (clamp). Either form comes with bounds on the stored balance under which it is exact, so
that the store refuses a wrong guess and never over-admits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.image import (
    BucketImage,
    LimitState,
    Rate,
    accrued_since_epoch,
    full_balance,
    is_quota,
    is_slots,
    is_split,
    level_milli,
)
from zae_limiter.bucket import EPOCH_MS

if TYPE_CHECKING:
    from zae_limiter.admission.request import BucketChange

UNBOUNDED = 2**200  # more than any charge


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

    @property
    def has_effect(self) -> bool:
        """Whether the move changes the limit, or has bounds on it."""
        has_bound = self.low is not None or self.high is not None
        return has_bound or self.put is not None or bool(self.add or self.consumed_milli)

    def applied(self, balance_milli: int) -> int:
        """Return the balance after the write."""
        return balance_milli + self.add if self.put is None else self.put


class Seen(NamedTuple):
    """How a store knows a bucket that it writes to without reading it first.

    The bucket was seen ``age_ms`` ago. Other clients take ``others_milli_per_s`` from each limit.
    """

    age_ms: int
    others_milli_per_s: Mapping[str, int]


class RateLedger:
    """The changes of one write to one rate: credits first, then debts, then charges.

    ``is_named`` is True if a change is entered: charges that did not fit may only have asked.
    ``asked`` is True if a charge is among them, even a charge of 0: then the limit must not be in
    debt. ``needed`` is the level that the charges require at the stamp; None means their sum,
    reservations require less. ``uncounted`` is not counted as consumed any more, although it is not
    given back.
    """

    # Amounts in millitokens. Most ledgers are those of one charge, so they begin as these.
    returned = owed = charged = uncounted = 0
    asked = is_named = is_soft = reserves = False
    needed: int | None = None
    room: int | None = None

    def __init__(self, key: str, state: LimitState, now_ms: int) -> None:
        self.key = key
        self.state = state
        rate = state.rate
        # The balance of a full limit: its capacity, less what has accrued since the epoch.
        self._full = rate.capacity_milli - (now_ms - EPOCH_MS) * rate.refill_milli // rate.period_ms
        if rate.terms is not None and rate.terms.soft:
            self.is_soft = True

    def enter(self, change: BucketChange, position: int, amount: int) -> None:
        self.is_named = True
        if change.forfeits:
            self.uncounted -= amount
        elif amount > 0 or change.is_debt:
            self.owed += amount
        else:
            self.returned -= amount

    def open(self, changes: Sequence[BucketChange]) -> int:
        state = self.state
        if self.is_soft:
            self.room = UNBOUNDED
        else:
            over = state.balance_milli + self.returned - self._full  # of the capacity, if positive
            self.room = state.rate.capacity_milli + min(over, 0) - self.owed
        return self.room

    def take(self, change: BucketChange, position: int, amount: int, advance: int = 0) -> None:
        self.is_named = True
        if self.is_soft:
            self.owed += amount
            return
        if change.until_ms is not None:
            self.reserves = True
        if advance and self.needed is None and self.asked:
            self.needed = self.charged  # charges that do not wait require their sum
        self.charged += amount
        if self.room is not None:
            self.room -= amount
        self.asked = True
        if advance or self.needed is not None:
            level = self.charged - advance
            self.needed = level if self.needed is None else max(level, self.needed)

    @property
    def gives_and_takes(self) -> bool:
        return bool(self.returned and (self.charged or self.owed))

    @property
    def net_milli(self) -> int:
        """The amount that the write adds to the net consumption of the limit."""
        return self.charged + self.owed - self.returned - self.uncounted

    def after(self) -> LimitState:
        state, balance, taken = self.state, self.state.balance_milli, self.charged + self.owed
        if taken:  # tokens that overflowed in idle time are lost before anything is taken
            balance = min(balance + self.returned, self._full) - taken
        else:
            balance += self.returned
        consumed = state.consumed_milli + taken - self.returned - self.uncounted
        return LimitState(balance, state.rate, consumed, state.counted_milli, None, state.number)

    def move(self, seen: Seen | None = None) -> Move:
        """Return the move of the limit; without ``seen`` it was read just now."""
        surplus = self.state.balance_milli + self.returned - self._full
        if surplus > 0 and seen is not None:
            rate, others = self.state.rate, seen.others_milli_per_s.get(self.key, 0)
            return self.branch(overflowing=_outlasts(surplus, rate, seen.age_ms, others))
        return self.branch(overflowing=surplus > 0)

    def first_move(self) -> Move:
        """Return the move of a limit that is absent or full, which are the same."""
        full = self._full
        return Move(self.key, full, None, 0, full - self.charged - self.owed, self.net_milli)

    def blind_move(self) -> Move:
        """Return the move of credits alone, which are the same whatever the limit is."""
        return Move(self.key, None, None, self.returned, None, self.net_milli)

    def branch(self, *, overflowing: bool) -> Move:
        """Return the move of one branch: a clamp if the limit is overflowing, else a plain one."""
        taken, returned, full = self.charged + self.owed, self.returned, self._full
        capacity, consumed = self.state.rate.capacity_milli, taken - returned - self.uncounted
        needed = taken  # the level that the write requires
        if self.needed is not None:
            needed = self.needed + self.owed
        if overflowing and taken and (not self.asked or needed <= capacity):
            # clamp: the surplus is cut off before anything is taken
            return Move(self.key, full - returned, None, 0, full - taken, consumed)
        low_if_asked = full - capacity + needed - returned if self.asked else None  # enough tokens
        high = full - returned if taken else None  # not overfull
        return Move(self.key, low_if_asked, high, returned - taken, None, consumed)


def room_milli(state: LimitState, now_ms: int) -> int:
    """Return how much a charge may take of a limit.

    A soft limit holds every amount. The first shard of a bucket has all of a quota and of slots;
    the others hold nothing of them, soft or not.
    """
    rate = state.rate
    if rate.terms is not None and rate.terms.soft:
        return UNBOUNDED if rate.capacity_milli or is_split(rate) else 0
    return level_milli(state, now_ms)


def charged_move(
    key: str, state: LimitState, amount_milli: int, now_ms: int, *, asked: bool = True
) -> Move:
    """Return the move of one charge on a limit that was read just now."""
    ledger = RateLedger(key, state, now_ms)
    ledger.charged, ledger.asked = amount_milli, asked
    return ledger.move()


def owed_move(key: str, state: LimitState, amount_milli: int, now_ms: int) -> Move:
    """Return the move of one debt on a limit that was read just now."""
    ledger = RateLedger(key, state, now_ms)
    ledger.owed = amount_milli
    return ledger.move()


def added_move(key: str, amount_milli: int) -> Move:
    """Return the move that adds an amount to the balance, whatever the balance is."""
    return Move(key=key, low=None, high=None, add=amount_milli, put=None)


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

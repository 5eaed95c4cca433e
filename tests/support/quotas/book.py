"""The ledger of live histories: what each limit of each bucket has had, without any store."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count

from zae_limiter import Limit
from zae_limiter.models.limit import FirstUse

HOLD_TTL = 60
NOTHING = Decimal(0)
_lives = count(1)


@dataclass
class Account:
    """What one call has to do with one book.

    ``life`` and ``window`` are those that admitted the call; ``window`` is None if the call does
    not name the limit, and no first use has begun one. A call that does not name the limit holds
    nothing, so it belongs to no life, but to every one of the same ``form``. ``spent`` is what is
    written as used.
    """

    call: int
    life: int
    form: object
    window: int | None
    is_named: bool = True
    spent: Decimal = NOTHING


@dataclass
class Book:
    """One limit of one bucket: its window, the settled costs, top-ups and estimates in flight.

    A life ends when the limit gets another kind or calendar. ``counted`` are the settled costs of
    all lives and windows; a rate counts estimates, too.
    """

    limit: Limit
    number: int | None = None  # of the running window: its number, or the moment of its first use
    settled: Decimal = NOTHING
    topped: Decimal = NOTHING
    counted: Decimal = NOTHING
    held: dict[int, tuple[Decimal, int]] = field(default_factory=dict)  # by call, with the expiry
    life: int = field(default_factory=lambda: next(_lives))

    @property
    def is_quota(self) -> bool:
        return self.limit.window is not None

    @property
    def is_first_use(self) -> bool:
        return isinstance(self.limit.window, FirstUse)

    # --- windows

    def joined(self, now_ms: int) -> int | None:
        """Return the window that a charge would use; None if it would be the first of its own."""
        window = self.limit.window
        if isinstance(window, FirstUse):
            runs = self.number is not None and now_ms < self.number + window.length_ms
            return self.number if runs else None
        assert window is not None
        number = window.number(now_ms)
        return number if self.number is None else max(number, self.number)

    def is_over(self, now_ms: int) -> bool:
        return self.number is None or self.joined(now_ms) != self.number

    def turn(self, now_ms: int) -> None:
        """Begin the window of a charge or top-up, if another one is stored."""
        if self.is_over(now_ms):
            joined = self.joined(now_ms)
            self.begin(now_ms if joined is None else joined)

    def begin(self, number: int) -> None:
        self.number = number
        self.settled = self.topped = NOTHING
        self.held = {}

    def create(self, now_ms: int) -> None:
        """Note that the bucket has the limit: a window of the calendar has begun."""
        if self.number is None and self.is_quota:
            self.number = self.joined(now_ms)

    # --- readings

    def held_at(self, now_ms: int) -> Decimal:
        if self.is_over(now_ms):
            return NOTHING
        return sum((units for units, end_ms in self.held.values() if end_ms > now_ms), NOTHING)

    def level(self, now_ms: int) -> Decimal:
        """Return the amount that a charge finds."""
        if self.is_over(now_ms):
            return Decimal(self.limit.amount)
        return self.limit.amount + self.topped - self.settled - self.held_at(now_ms)

    def used(self, now_ms: int) -> Decimal:
        return NOTHING if self.is_over(now_ms) else self.settled

    def admits(self, amount: Decimal, now_ms: int) -> bool:
        """Tell whether a charge fits; a rate of these histories is never used up."""
        return not self.is_quota or self.level(now_ms) >= amount

    # --- changes

    def admit(self, call: int, amount: Decimal, now_ms: int) -> Account:
        """Hold an amount, and return what has expired; a rate counts it as used."""
        if not self.is_quota:
            self.counted += amount
            return Account(call, self.life, None, None, spent=amount)
        self.create(now_ms)
        if amount:
            self.turn(now_ms)
            self.held = {each: hold for each, hold in self.held.items() if hold[1] > now_ms}
            self.held[call] = amount, expiry_ms(now_ms)
        window = self.limit.window
        return Account(call, self.life, window, self.joined(now_ms), is_named=bool(amount))

    def settle_at_once(self, account: Account, cost: Decimal, now_ms: int) -> None:
        """Count the cost of a call that goes on: nothing of it is held any more."""
        self.settle(account, cost, now_ms)

    def settle(self, account: Account, cost: Decimal, now_ms: int) -> None:
        """Count the cost of a call as used."""
        change, account.spent = cost - account.spent, cost
        self.counted += change
        holds = self.held.pop(account.call, None) is not None
        if not self.is_quota or not self.is_of_this_life(account):
            return
        if change > 0 and not account.is_named:
            self._begin_with_debt(account, now_ms)
        if account.window is not None and account.window == self.number:
            self.settled += change
            if not holds:  # what a reset has forgiven is not given back once more
                self.settled = max(self.settled, NOTHING)

    def is_of_this_life(self, account: Account) -> bool:
        if account.is_named:
            return account.life == self.life
        return account.form == self.limit.window

    def _begin_with_debt(self, account: Account, now_ms: int) -> None:
        """The debt of a call that does not name the limit may begin the call's window."""
        if account.window is None:
            self.turn(now_ms)
            account.window = self.number
        elif not self.is_first_use and (self.number is None or account.window > self.number):
            self.begin(account.window)

    def brought_to(self, limit: Limit, now_ms: int) -> Book:
        """Return the book under another limit: what was used stays used.

        Another calendar keeps the estimates of calls in flight, which end as usage only.
        Another kind begins full.
        """
        book = copy(self)
        book.limit, book.held = limit, dict(self.held)
        if limit.window == self.limit.window and limit.currency == self.limit.currency:
            return book
        book.life, book.held = next(_lives), {}
        is_same_kind = self.is_quota and book.is_quota and self.is_first_use == book.is_first_use
        if not is_same_kind or self.is_over(now_ms):
            book.number, book.settled, book.topped = None, NOTHING, NOTHING
        else:
            book.settled += self.held_at(now_ms)
            if not book.is_first_use:
                book.number = None
        book.create(now_ms)
        return book


def expiry_ms(now_ms: int) -> int:
    """Return the moment at which a hold expires: whole steps of half its TTL, rounded up."""
    step_ms = HOLD_TTL // 2 * 1000
    return -(-(now_ms + HOLD_TTL * 1000) // step_ms) * step_ms

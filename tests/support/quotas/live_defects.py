"""Ledgers and worlds with a wrong rule: live histories must tell each of them from the stores."""

from __future__ import annotations

from decimal import Decimal

from tests.support.quotas.book import NOTHING, Account, Book, expiry_ms
from tests.support.quotas.live import LiveWorld
from zae_limiter import Limit


class HoldsWhatIsSettled(Book):
    """What a call has settled at once is held: it comes back if its process dies."""

    def settle_at_once(self, account: Account, cost: Decimal, now_ms: int) -> None:
        is_held = account.call in self.held
        self.settle(account, cost, now_ms)
        if is_held:
            self.settled -= cost
            self.counted -= cost
            account.spent = NOTHING
            self.held[account.call] = cost, expiry_ms(now_ms)


class ForgetsSettlements(Book):
    """A call that has settled at once settles from nothing again."""

    def settle_at_once(self, account: Account, cost: Decimal, now_ms: int) -> None:
        self.settle(account, cost, now_ms)
        account.spent = NOTHING


class LivesAgain(Book):
    """A limit that is changed goes on in its old life: old calls settle in it."""

    def brought_to(self, limit: Limit, now_ms: int) -> Book:
        book = super().brought_to(limit, now_ms)
        book.life = self.life
        return book


class ReturnsEstimates(Book):
    """Another calendar gives the estimates of calls in flight back."""

    def brought_to(self, limit: Limit, now_ms: int) -> Book:
        book = super().brought_to(limit, now_ms)
        if book.life != self.life and book.number is not None and not self.is_over(now_ms):
            book.settled = min(book.settled, self.settled)
        return book


class BeginsFull(Book):
    """Another calendar begins full, as another kind does."""

    def brought_to(self, limit: Limit, now_ms: int) -> Book:
        book = super().brought_to(limit, now_ms)
        if book.life != self.life:
            book.settled = book.topped = NOTHING
        return book


class BeginsWithCallsOnly(Book):
    """The debt of a call that does not name a quota begins no window of it."""

    def _begin_with_debt(self, account: Account, now_ms: int) -> None:
        pass


class BeginsWithEachDebt(Book):
    """A later debt of such a call does not count for the window that its first one has begun."""

    def _begin_with_debt(self, account: Account, now_ms: int) -> None:
        was_begun = account.window
        super()._begin_with_debt(account, now_ms)
        if was_begun is None and self.is_first_use:
            self.settled += account.spent
            account.window = None


class CountsExpiredHolds(Book):
    """A call that does not name a quota finds what dead calls held."""

    def admits(self, amount: Decimal, now_ms: int) -> bool:
        fits = super().admits(amount, now_ms)
        if amount or not self.is_quota or self.is_over(now_ms):
            return fits
        held = sum((units for units, _ in self.held.values()), NOTHING)
        return self.limit.amount + self.topped - self.settled >= held


class LosesThePlaceInLine(LiveWorld):
    """Settlements that are made at once overtake each other."""

    def in_order(self, costs: list[dict[str, Decimal]]) -> list[dict[str, Decimal]]:
        return costs[::-1]


class GivesAnythingBack(LiveWorld):
    """A call may give more back than it costs."""

    def may_adjust(self, cost: Decimal) -> bool:
        return True

"""The ledger: what was certainly used, what may have been, and what the subject shows of it.

A rate keeps what a dead process has taken. A process that died, or that counted lost refunds, may
have left something charged for callers that left, and for one side of rejected cascades. A quota
gives a hold back that nobody renews, so what a dead process held costs nothing in the end, and an
exit without an answer costs all or nothing. What a call has settled is used, and no hold any more,
even if its process dies before the exit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proof.checker.history import (
    ADMITTED,
    CANCELLED,
    REJECTED,
    UNKNOWN,
    WRITTEN,
    History,
    Operation,
    Terms,
)


@dataclass(frozen=True, slots=True)
class Account:
    """The use of one series: at least, and at most if all that is unknown was carried out."""

    least: int = 0
    most: int = 0

    def plus(self, least: int, most: int) -> Account:
        return Account(self.least + least, self.most + most)


@dataclass(frozen=True, slots=True)
class Balance:
    """One series at the end, compared with its account."""

    series: str
    missing: float  # tokens that are neither there nor accounted for
    credited_twice: float  # tokens that are there although they were used
    usage_error: float  # counted use outside of the account


def account(history: History, terms: Terms) -> Account:
    """Return what the series was used for, according to its callers."""
    if terms.is_quota:
        return _quota_account(history, terms.series)
    total = Account()
    for each in history.operations:
        amount = each.amounts.get(terms.series, 0)
        if each.outcome in (ADMITTED, WRITTEN):
            total = total.plus(amount, amount)
        elif each.outcome == UNKNOWN or _may_be_charged(history, each):
            total = total.plus(min(0, amount), max(0, amount))
    return total


def _may_be_charged(history: History, each: Operation) -> bool:
    """Return whether a refund may be missing: of a caller that left, or of a rejected cascade."""
    takes_back = each.outcome == CANCELLED or (each.outcome == REJECTED and each.is_cascade)
    return takes_back and each.process not in history.clean


def _quota_account(history: History, series: str) -> Account:
    held = {
        each.lease: each.amounts[series]
        for each in history.decisions
        if each.outcome == ADMITTED and series in each.amounts
    }
    total = Account()
    for lease, changes in history.changes(series).items():
        cost = _cost(held[lease], [(each.amounts[series], each.outcome) for each in changes])
        total = total.plus(cost.least, cost.most)
    return total


def _cost(held: int, changes: Iterable[tuple[int, str]]) -> Account:
    """Return the cost of a lease that held an amount: nothing before it is settled."""
    found, cost = Account(), held
    for change, outcome in changes:
        cost += change
        if outcome == WRITTEN:
            found = Account(cost, cost)
        else:
            found = Account(min(found.least, cost), max(found.most, cost))
    return found


def _held(history: History, terms: Terms) -> int:
    """Return the amounts of a quota that calls without an end may still hold.

    A hold that has expired counts as use until the next write, which may never come.
    """
    if not terms.is_quota:
        return 0
    changed = history.changes(terms.series)
    return sum(
        each.amounts.get(terms.series, 0)
        for each in history.decisions
        if each.outcome in (ADMITTED, UNKNOWN, CANCELLED) and each.lease not in changed
    )


def given_too_much(history: History, series: str) -> int:
    """Return the most that a lease gave back beyond what it had taken."""
    taken: dict[tuple[str, int], int] = {}
    for each in history.operations:
        if each.outcome in (ADMITTED, WRITTEN) and series in each.amounts:
            taken[each.lease] = taken.get(each.lease, 0) + each.amounts[series]
    return max(0, -min(taken.values(), default=0))


def balance(history: History, terms: Terms) -> Balance:
    """Compare the last readings of a series with its account."""
    used, series = account(history, terms), terms.series
    missing = twice = wrong = 0
    if series in history.levels:
        _, level = history.levels[series]
        least, most = terms.capacity, terms.capacity
        if terms.is_quota:
            # A quota that a process has overdrawn which was stopped shows nothing left.
            least, most = terms.capacity - used.most, max(0, terms.capacity - used.least)
        missing, twice = max(0, least - level), max(0, level - most)
    if series in history.usage:
        counted = history.usage[series]
        wrong = max(0, used.least - counted, counted - used.most - _held(history, terms))
        twice = max(twice, used.least - counted)
    unit = terms.unit
    return Balance(series, missing / unit, twice / unit, wrong / unit)

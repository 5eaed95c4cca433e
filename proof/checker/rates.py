"""Rules about rates: admitted too much, and rejected although there was enough.

**Excess.** In every window, what was admitted, and the debts that were written before the last
admission, less what may have been given back in it, is at most capacity + refill. An admission
counts if it lies in the window as a whole: otherwise it may have happened outside of it. A caller
that has left may have taken tokens before the window and given them back in it, and so may a call
of a child whose parent has rejected it.

**Shortfall.** A rejection is wrong if every limit of its bucket had the amount at every moment of
its interval, counting all that others may have taken by then, and only what was surely given back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proof.checker.history import (
    ADMITTED,
    CANCELLED,
    OUTCOMES,
    REJECTED,
    UNKNOWN,
    WRITTEN,
    History,
    Operation,
    Terms,
)
from proof.checker.refill import UNIT, Refill
from proof.checker.sweep import Windows

_NEVER = 2**62


class Amount(NamedTuple):
    """An amount at some moment of an interval."""

    before: int
    after: int
    amount: int


class Credit(NamedTuple):
    """An amount that may have been given back at some moment of an interval.

    It counts in windows that begin after ``since``: those that begin earlier contain the charge
    as well as the credit.
    """

    before: int
    after: int
    amount: int
    since: int


@dataclass(frozen=True, slots=True)
class Excess:
    """The worst window of a series, in billionths of a token; at most 0 if the limit was kept."""

    series: str
    billionths: int
    begin: int = 0
    end: int = 0

    @property
    def tokens(self) -> float:
        return max(0, self.billionths) / UNIT


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A wrong rejection, and the billionths of a token that were surely there."""

    billionths: int
    rejection: Operation

    @property
    def tokens(self) -> float:
        return self.billionths / UNIT


def amounts(
    operations: Iterable[Operation], series: str, outcomes: Sequence[str], sign: int
) -> list[Amount]:
    """Return the amounts of one sign with one of these outcomes."""
    return [
        Amount(each.before, _end(each), abs(each.amounts[series]) * UNIT)
        for each in operations
        if each.outcome in outcomes and each.amounts.get(series, 0) * sign > 0
    ]


def _end(operation: Operation) -> int:
    """Return when the operation was over at the latest."""
    return _NEVER if operation.after is None else operation.after


def excess(history: History, terms: Sequence[Terms]) -> Excess:
    """Return the worst of all windows of a series."""
    series, late_ns = terms[0].series, terms[0].late_returns_ns
    changes = [each for each in history.operations if not each.is_decision]
    granted = amounts(history.decisions, series, (ADMITTED,), 1)
    debts = amounts(changes, series, (WRITTEN,), 1)
    returned = [
        Credit(each.before, each.after + late_ns, each.amount, -_NEVER)
        for each in amounts(changes, series, (WRITTEN, UNKNOWN), -1)
    ] + [
        Credit(each.before, each.after + late_ns, each.amount, each.before)
        for each in amounts(_taken_back(history), series, OUTCOMES, 1)
    ]
    return _worst_window(series, Refill(terms, max), granted, debts, returned)


def _taken_back(history: History) -> list[Operation]:
    """Return the calls that may have been charged, and were refunded by the limiter itself."""
    return [
        each
        for each in history.decisions
        if each.outcome == CANCELLED
        or (each.outcome in (REJECTED, UNKNOWN) and each.is_cascade and each.after is not None)
    ]


def _worst_window(
    series: str, refill: Refill, granted: list[Amount], debts: list[Amount], returned: list[Credit]
) -> Excess:
    if not granted:
        return Excess(series, 0)
    positions = sorted({each.before for each in (*granted, *debts)})
    windows = Windows(positions, [refill.until(at) - refill.capacity(at) for at in positions])
    granted.sort(key=lambda each: each.after)
    debts.sort(key=lambda each: each.after)
    returned.sort(key=lambda each: each.before)
    worst, end, latest, done, given = -(10**40), 0, -_NEVER, 0, 0
    for number, grant in enumerate(granted):
        while given < len(returned) and returned[given].before <= grant.after:
            windows.add(returned[given].after, -returned[given].amount)
            windows.add(returned[given].since, returned[given].amount)
            given += 1
        latest = max(latest, grant.before)
        while done < len(debts) and debts[done].after < latest:
            _count(windows, debts[done])
            done += 1
        _count(windows, grant)
        is_last = number + 1 == len(granted) or granted[number + 1].after > grant.after
        best = windows.best
        if is_last and best is not None and best - refill.until(grant.after) > worst:
            worst, end = best - refill.until(grant.after), grant.after
    begin = _begin_of(end, positions, refill, granted, debts, returned)
    return Excess(series, worst, begin, end)


def _count(windows: Windows, each: Amount) -> None:
    windows.open(each.before)
    windows.add(each.before, each.amount)


def _begin_of(
    end: int,
    positions: list[int],
    refill: Refill,
    granted: list[Amount],
    debts: list[Amount],
    returned: list[Credit],
) -> int:
    """Return the begin of the worst window that ends there, by counting once more."""
    inside = [each for each in granted if each.after <= end]
    latest = max(each.before for each in inside)
    inside += [each for each in debts if each.after < latest]
    back = [each for each in returned if each.before <= end]
    taken_from = _Tail((each.before, each.amount) for each in inside)
    back_from = _Tail(
        timed for each in back for timed in ((each.after, each.amount), (each.since, -each.amount))
    )
    return max(
        (at for at in positions if at <= end),
        key=lambda at: (
            taken_from.sum(at) - back_from.sum(at) + refill.until(at) - refill.capacity(at)
        ),
    )


class _Tail:
    """Sums of the amounts from a time on."""

    def __init__(self, timed: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(timed)
        self._times = [at for at, _ in ordered]
        self._sums = [0] * (len(ordered) + 1)
        for index in range(len(ordered) - 1, -1, -1):
            self._sums[index] = self._sums[index + 1] + ordered[index][1]

    def sum(self, at: int) -> int:
        return self._sums[bisect_left(self._times, at)]


def shortfalls(history: History, bucket: Sequence[Terms], slack_ns: int) -> list[Shortfall]:
    """Return the wrong rejections of a bucket, given all its series.

    ``slack_ns`` is how long after it was written a credit may be unknown to other processes.
    """
    names = {each.series for each in bucket}
    rejections = [
        each
        for each in history.decisions
        if each.outcome == REJECTED and each.amounts and names.issuperset(each.amounts)
    ]
    if not rejections:
        return []
    lowest = {each.series: _lowest_levels(history, each, rejections, slack_ns) for each in bucket}
    wrong = []
    for number, rejection in enumerate(rejections):
        levels = {series: found[number] for series, found in lowest.items()}
        if any(levels[name] < rejection.amounts.get(name, 0) * UNIT for name in names):
            continue
        there = min(levels[name] for name in rejection.amounts)
        wrong.append(Shortfall(there, rejection))
    return wrong


def _lowest_levels(
    history: History, terms: Terms, rejections: Sequence[Operation], slack_ns: int
) -> list[int]:
    """Return for each rejection the lowest level that the series may have had in its interval."""
    refill, series = Refill([terms], min), terms.series
    taken = amounts(history.operations, series, (ADMITTED, WRITTEN, UNKNOWN, CANCELLED), 1)
    returned = amounts(history.operations, series, (WRITTEN,), -1)
    gone = amounts(history.decisions, series, (CANCELLED,), 1)  # all of it is back in the end
    returned += [Amount(each.after, each.after, each.amount) for each in gone]
    asked = {at for each in rejections for at in (each.before, _end(each))}
    positions = sorted({at for each in taken for at in (each.before, each.after)} | asked)
    windows = Windows(positions, [refill.until(at) - refill.capacity(at) for at in positions])
    taken.sort(key=lambda each: each.before)
    returned.sort(key=lambda each: each.after)
    levels, begun, back = [], 0, 0
    for at in positions:
        windows.open(at)
        while back < len(returned) and returned[back].after + slack_ns < at:
            windows.add(returned[back].before, -returned[back].amount)
            back += 1
        while begun < len(taken) and taken[begun].before <= at:
            windows.add(taken[begun].after, taken[begun].amount)
            begun += 1
        levels.append(refill.until(at) - (windows.best or 0))
    return [
        min(levels[bisect_left(positions, each.before) : bisect_right(positions, _end(each))])
        for each in rejections
    ]

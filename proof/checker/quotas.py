"""The rule of quotas: in no calendar window is more admitted than the amount.

An admission counts for a window if its interval lies within it, away from the edges by the largest
error of a clock. What its lease gave back may admit others from the begin of its exit on. If a
lease stayed open for so long that its hold may have expired, all of it may have come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from proof.checker.history import ADMITTED, WRITTEN, History, Operation, Terms
from proof.checker.rates import Amount, Excess
from proof.checker.refill import UNIT


def quota_excess(history: History, terms: Terms, clock_error_ns: int) -> Excess:
    """Return the worst calendar window of a quota."""
    windows: dict[int, list[Operation]] = {}
    for each in history.decisions:
        if each.outcome == ADMITTED and each.amounts.get(terms.series):
            number = _window(history, terms, each, clock_error_ns)
            if number is not None:
                windows.setdefault(number, []).append(each)
    exits = {
        each.lease: each
        for each in history.operations
        if not each.is_decision and terms.series in each.amounts
    }
    worst = Excess(terms.series, 0)
    for admitted in windows.values():
        found = _fullest(terms, admitted, exits)
        if found.billionths > worst.billionths * terms.unit:
            worst = replace(found, billionths=found.billionths // terms.unit)
    return worst


def windows_seen(history: History, terms: Terms) -> int:
    """Return the number of calendar windows in which something was admitted."""
    numbers = {
        _window(history, terms, each, 0)
        for each in history.decisions
        if each.outcome == ADMITTED and each.amounts.get(terms.series)
    }
    return len(numbers - {None})


def _window(history: History, terms: Terms, each: Operation, error_ns: int) -> int | None:
    """Return the number of the window that the decision surely belongs to."""
    assert terms.window_ns is not None
    assert each.after is not None
    wall_ns = history.run["wall_ns"]
    first = (each.before + wall_ns - error_ns) // terms.window_ns
    last = (each.after + wall_ns + error_ns) // terms.window_ns
    return first if first == last else None


def _fullest(
    terms: Terms, admitted: list[Operation], exits: dict[tuple[str, int], Operation]
) -> Excess:
    """Return how much more than the amount was taken at the worst moment of one window."""
    returned = sorted(_returns(terms, admitted, exits), key=lambda each: each.before)
    debts = sorted(_debts(terms, admitted, exits), key=lambda each: each.after)
    taken, given, done, latest, worst = -terms.capacity * UNIT, 0, 0, 0, Excess(terms.series, 0)
    begin = min(each.before for each in admitted)
    for each in sorted(admitted, key=lambda each: each.after or 0):
        end = each.after or 0
        taken += each.amounts[terms.series] * UNIT
        latest = max(latest, each.before)
        while given < len(returned) and returned[given].before <= end:
            taken -= returned[given].amount
            given += 1
        while done < len(debts) and debts[done].after < latest:
            taken += debts[done].amount
            done += 1
        if taken > worst.billionths:
            worst = Excess(terms.series, taken, begin, end)
    return worst


def _returns(
    terms: Terms, admitted: Iterable[Operation], exits: dict[tuple[str, int], Operation]
) -> Iterable[Amount]:
    for each in admitted:
        held, exit_ = each.amounts[terms.series] * UNIT, exits.get(each.lease)
        ended = exit_.after or 0 if exit_ is not None and exit_.outcome == WRITTEN else None
        if terms.hold_ttl_ns is not None:
            # A hold expires this long after its renewal, which comes every half of its time. The
            # exit of a process that was stopped may be carried out after that.
            expires = each.before + terms.hold_ttl_ns - terms.hold_ttl_ns // 2
            if ended is None or ended > expires:
                yield Amount(expires, expires, held)
                continue
        if exit_ is not None and ended is not None and exit_.amounts[terms.series] < 0:
            yield Amount(exit_.before, ended, -exit_.amounts[terms.series] * UNIT)


def _debts(
    terms: Terms, admitted: Iterable[Operation], exits: dict[tuple[str, int], Operation]
) -> Iterable[Amount]:
    for each in admitted:
        exit_ = exits.get(each.lease)
        if exit_ is not None and exit_.outcome == WRITTEN and exit_.amounts[terms.series] > 0:
            yield Amount(exit_.before, exit_.after or 0, exit_.amounts[terms.series] * UNIT)

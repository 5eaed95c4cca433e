"""The rule of quotas: in no calendar window is more admitted than the amount.

An admission counts for a window if its interval lies within it, away from the edges by the largest
error of a clock. What its lease gave back may admit others from the begin of that change on. If a
lease stayed open for so long that its hold may have expired before it was settled, all of it may
have come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from proof.checker.history import ADMITTED, UNKNOWN, WRITTEN, History, Operation, Terms
from proof.checker.rates import Amount, Excess
from proof.checker.refill import UNIT

_NEVER = 2**62
Changes = dict[tuple[str, int], list[Operation]]  # by lease, in their order


def quota_excess(history: History, terms: Terms, clock_error_ns: int) -> Excess:
    """Return the worst calendar window of a quota."""
    windows: dict[int, list[Operation]] = {}
    for each in history.decisions:
        if each.outcome == ADMITTED and each.amounts.get(terms.series):
            number = _window(history, terms, each, clock_error_ns)
            if number is not None:
                windows.setdefault(number, []).append(each)
    changes = history.changes(terms.series)
    worst = Excess(terms.series, 0)
    for admitted in windows.values():
        found = _fullest(terms, admitted, changes)
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


def _fullest(terms: Terms, admitted: list[Operation], changes: Changes) -> Excess:
    """Return how much more than the amount was taken at the worst moment of one window."""
    returned = sorted(_returns(terms, admitted, changes), key=lambda each: each.before)
    debts = sorted(_debts(terms, admitted, changes), key=lambda each: each.after)
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


def _returns(terms: Terms, admitted: Iterable[Operation], changes: Changes) -> Iterable[Amount]:
    """Return what may have come back: credits, and holds that may have expired.

    A hold ends with the first change that is written. If that was too late, or is not known, the
    hold may have expired before.
    """
    for each in admitted:
        of_lease, held = changes.get(each.lease, []), each.amounts[terms.series]
        latest = _NEVER
        if terms.hold_ttl_ns is not None:
            # A hold expires this long after its renewal, which comes every half of its time. The
            # exit of a process that was stopped may be carried out after that.
            expires = each.before + terms.hold_ttl_ns - terms.hold_ttl_ns // 2
            first = next((one.after for one in of_lease if one.outcome == WRITTEN), None)
            if first is None or first > expires:
                latest = expires
        for one in of_lease:
            credit = -one.amounts[terms.series]
            if one.outcome in (WRITTEN, UNKNOWN) and credit > 0:
                held -= credit
                begin = min(one.before, latest)
                yield Amount(begin, begin, credit * UNIT)
        if latest < _NEVER and held > 0:
            yield Amount(latest, latest, held * UNIT)


def _debts(terms: Terms, admitted: Iterable[Operation], changes: Changes) -> Iterable[Amount]:
    for each in admitted:
        for one in changes.get(each.lease, []):
            if one.outcome == WRITTEN and one.amounts[terms.series] > 0:
                yield Amount(one.before, one.after or 0, one.amounts[terms.series] * UNIT)

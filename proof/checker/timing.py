"""How long decisions take, and how soon processes are answered again after a fault."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from proof.checker.history import ADMITTED, REJECTED, History, Operation, Struck

_ANSWERED = (ADMITTED, REJECTED)


def longest_decision_ns(history: History) -> int:
    """Return the longest time that a caller waited for an answer, or for capacity."""
    return max(
        (each.lasted_ns for each in history.decisions if each.outcome in _ANSWERED), default=0
    )


def recovery_ns(history: History) -> int | None:
    """Return the longest time from the end of faults to the next answer of each process.

    Faults that overlap are one. A process waits for an answer if it was there before the next
    fault, and begins a call after the end; a process that was killed meanwhile waits no more. None:
    a process that went on was never answered again.
    """
    calls: dict[str, list[Operation]] = {}
    for each in history.decisions:
        calls.setdefault(each.process, []).append(each)
    longest, no_fault = 0, (history.finish_ns, history.finish_ns)
    spans = [*_merged(history.faults), no_fault]
    for process, of_process in calls.items():
        begins = [each.before for each in of_process]  # in the order of the diary
        for (_, end), (next_begin, _) in pairwise(spans):
            later = of_process[bisect_right(begins, end) :]
            if not later or begins[0] > next_begin:
                continue
            answered = _first_answer(later)
            if answered is not None:
                longest = max(longest, answered - end)
            elif process in history.closed:
                return None
    return longest


def _merged(faults: list[Struck]) -> list[tuple[int, int]]:
    """Return the spans in which at least one fault was active, in their order."""
    spans: list[tuple[int, int]] = []
    for struck in sorted(faults, key=lambda each: each.begin):
        if spans and struck.begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], struck.end)
        else:
            spans.append((struck.begin, struck.end))
    return spans


def _first_answer(calls: list[Operation]) -> int | None:
    """Return the first end of an answered call; only calls that begin before it can be earlier."""
    first: int | None = None
    for each in calls:
        if first is not None and each.before > first:
            break
        if each.outcome in _ANSWERED and each.after is not None:
            first = each.after if first is None else min(first, each.after)
    return first


def clock_difference_ns(history: History, which: str) -> int:
    """Return the largest difference of two readings of ``host`` or ``limiter`` in the run."""
    offsets = [each[which] for each in history.clocks if each.get(which) is not None]
    return max(offsets) - min(offsets) if offsets else 0


def clock_error_ns(history: History) -> int:
    """Return how far the clock of a host was from the wall clock of the machine at most."""
    wall_ns = history.run.get("wall_ns", 0)
    return max((abs(each["host"] - wall_ns) for each in history.clocks), default=0)

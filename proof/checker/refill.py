"""The terms of a series over time, as favourable or as unfavourable to the subject as they may be.

While a change of limits is under way, either terms may be in force. Amounts are billionths of a
token, so that sums of refill stay whole numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from proof.checker.history import SECOND_NS, Terms

UNIT = SECOND_NS  # billionths of a token in a token

Choose = Callable[[Iterable[int]], int]


class Refill:
    """Capacity and refill of a series; ``choose`` is max or min of the terms in doubt."""

    def __init__(self, terms: Sequence[Terms], choose: Choose) -> None:
        first, later = terms[0], terms[1:]
        changes = [each.since for each in later if each.since is not None]
        self._edges = sorted({edge for change in changes for edge in change})
        self._capacities, self._rates = [], []
        for begin in (None, *self._edges):
            valid = _valid([first, *later], begin)
            self._capacities.append(choose(each.capacity for each in valid) * UNIT)
            self._rates.append(choose(_rate(each) for each in valid))
        self._sums = [0]
        for index in range(1, len(self._edges)):
            length = self._edges[index] - self._edges[index - 1]
            self._sums.append(self._sums[-1] + length * self._rates[index])

    def capacity(self, at_ns: int) -> int:
        return self._capacities[bisect_right(self._edges, at_ns)]

    def until(self, at_ns: int) -> int:
        """Return the refill from some fixed moment until this time; may be negative."""
        if not self._edges:
            return at_ns * self._rates[0]
        index = bisect_right(self._edges, at_ns)
        edge = max(0, index - 1)
        return self._sums[edge] + (at_ns - self._edges[edge]) * self._rates[index]


def _rate(terms: Terms) -> int:
    """Return the billionths of a token that accrue in a nanosecond."""
    rate, rest = divmod(terms.refill * UNIT, terms.period_ns)
    if rest:
        raise ValueError(f"{terms.series} must refill by whole tokens per second, not {terms}")
    return rate


def _valid(terms: Sequence[Terms], begin: int | None) -> list[Terms]:
    """Return the terms that may be in force after this edge: the last certain one, and later."""
    if begin is None:
        return [terms[0]]
    certain = [each for each in terms if each.since is None or each.since[1] <= begin]
    in_doubt = [
        each for each in terms if each.since is not None and each.since[0] <= begin < each.since[1]
    ]
    return [certain[-1], *in_doubt]

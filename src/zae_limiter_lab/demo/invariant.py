"""Check that no limit admitted too much, from the callers' log alone and in whole numbers.

For each limit of each bucket, and for every window that begins with a grant or debt and ends with
a grant::

    granted + debts  <  capacity + refill · (end − begin) + given back + 1/1000 token

- *granted*: tokens of the admissions in the window, both ends included.
- *debts*: tokens that calls cost beyond their estimate. A debt is never refused, but its tokens
  cannot be admitted. It counts if it was certainly written within the window.
- *given back*: credits that may have been written within the window.
- *1/1000 token*: stores count in thousandths and round down at both ends of the window.

Before the window, the bucket held at most its capacity; after the last grant, at least zero; in
between, only refill and credits added tokens. Where the log leaves the order of calls open, the
limiter gets the benefit of the doubt.

Every term is a sum up to the end minus a sum before the begin. So the fullest of all windows is
found in one pass: for each end, the best begin so far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from zae_limiter.models.limit import Limit
from zae_limiter_lab.demo.log import BucketLimit, GrantLog, LimitLog

MILLI = 1000  # thousandths in a token, milliseconds in a second


class Window(NamedTuple):
    """The fullest window of one limit of one bucket."""

    key: BucketLimit
    limit: Limit
    from_ms: int
    to_ms: int
    granted: int
    debts: int
    given_back: int
    windows: int  # number of windows that were compared

    @property
    def refill(self) -> float:
        """Tokens refilled during the window; rounded, for display only."""
        seconds = (self.to_ms - self.from_ms) / MILLI
        return self.limit.refill_amount * seconds / self.limit.refill_period_seconds

    @property
    def allowed(self) -> float:
        """Tokens that may be taken in the window; rounded, for display only."""
        return self.limit.capacity + self.refill + self.given_back

    @property
    def share(self) -> float:
        """The taken part of the allowed tokens; rounded, for display only."""
        return (self.granted + self.debts) / self.allowed

    @property
    def holds(self) -> bool:
        """Whether the inequality above holds; multiplied by 1000 · period in ms, to stay exact."""
        limit = self.limit
        period_ms = limit.refill_period_seconds * MILLI
        over = self.granted + self.debts - self.given_back - limit.capacity
        refill = limit.refill_amount * (self.to_ms - self.from_ms)
        return MILLI * (over * period_ms - refill) < period_ms


def fullest_windows(log: GrantLog, limits: Mapping[BucketLimit, Limit]) -> list[Window]:
    """Return, for every limit with grants, the window that comes closest to the bound."""
    return [
        _fullest(key, limits[key], entries) for key, entries in log.limits.items() if entries.grants
    ]


class _Sums:
    """Cumulative tokens, ordered by time."""

    def __init__(self, timed: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(timed)
        self._times = [time_ms for time_ms, _ in ordered]
        self._totals = [0, *accumulate(tokens for _, tokens in ordered)]

    def before(self, time_ms: int) -> int:
        return self._totals[bisect_left(self._times, time_ms)]

    def until(self, time_ms: int) -> int:
        return self._totals[bisect_right(self._times, time_ms)]


class _Edge(NamedTuple):
    """The sums before one end of a window; those of the window are the difference of two edges."""

    time_ms: int
    granted: int
    debts: int
    given_back: int

    def weight(self, limit: Limit) -> int:
        """Return the tokens taken beyond the refill, times the period in ms to stay exact."""
        taken = self.granted + self.debts - self.given_back
        return taken * limit.refill_period_seconds * MILLI - self.time_ms * limit.refill_amount


def _fullest(key: BucketLimit, limit: Limit, log: LimitLog) -> Window:
    begins, ends = _begins(log), _ends(log)
    best, earlier, windows = begins[0], 0, 0
    fullest = (best, ends[0])
    for end in ends:
        while earlier < len(begins) and begins[earlier].time_ms <= end.time_ms:
            best = min(best, begins[earlier], key=lambda edge: edge.weight(limit))
            earlier += 1
        windows += earlier
        fullest = max(
            fullest, (best, end), key=lambda pair: pair[1].weight(limit) - pair[0].weight(limit)
        )
    begin, end = fullest
    return Window(
        key=key,
        limit=limit,
        from_ms=begin.time_ms,
        to_ms=end.time_ms,
        granted=end.granted - begin.granted,
        debts=end.debts - begin.debts,
        given_back=end.given_back - begin.given_back,
        windows=windows,
    )


def _begins(log: LimitLog) -> list[_Edge]:
    """Return the edges where a window may begin: the earliest times of grants and debts."""
    granted = _Sums((entry.moment.began_ms, entry.tokens) for entry in log.grants)
    debts = _Sums((entry.moment.began_ms, entry.tokens) for entry in log.debts)
    written = _Sums((entry.moment.done_ms, entry.tokens) for entry in log.credits)
    times = {entry.moment.began_ms for entry in (*log.grants, *log.debts)}
    return [
        _Edge(time_ms, granted.before(time_ms), debts.before(time_ms), written.before(time_ms))
        for time_ms in sorted(times)
    ]


def _ends(log: LimitLog) -> list[_Edge]:
    """Return the edges where a window may end: the latest times of grants."""
    granted = _Sums((entry.moment.done_ms, entry.tokens) for entry in log.grants)
    debts = _Sums((entry.moment.done_ms, entry.tokens) for entry in log.debts)
    begun = _Sums((entry.moment.began_ms, entry.tokens) for entry in log.credits)
    latest_ms = 0
    ends = []
    for done_ms, began_ms in sorted((e.moment.done_ms, e.moment.began_ms) for e in log.grants):
        latest_ms = max(latest_ms, began_ms)  # a debt before it took tokens from a grant
        ends.append(
            _Edge(done_ms, granted.until(done_ms), debts.before(latest_ms), begun.until(done_ms))
        )
    return ends

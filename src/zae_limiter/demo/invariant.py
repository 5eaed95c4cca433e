"""Did any limit let too much through? Judged from the log alone, in whole numbers.

For each limit of each bucket, and for every window from the stamp ``a`` of a grant or debt to the
stamp ``b`` of a grant::

    granted + debts  <  capacity + refill · (b − a) + given back + 1/1000 token

- *granted*: admissions whose stamps lie in the window, both ends included.
- *debts*: what calls cost beyond their estimate. A debt is no admission and may not be refused,
  but what it took cannot be admitted again. It counts where it was certainly written after the
  window began and before one of its grants.
- *given back*: refunds that may have been written after the window's first charge and before
  its last grant. Where the log leaves the order open, it is decided in favour of the limiter.
- *1/1000 token*: stores count in thousandths and round down at both ends of the window.

Why it must hold: before the first charge of the window, in the order of the store, the bucket held
at most its capacity; after its last grant, not less than nothing; in between, only time and
refunds put something in. Grants of one stamp, or stamped out of order, change nothing about it.

Every term is a sum up to ``b`` less a sum before ``a``, so the fullest of all windows is found in
one pass: for each end, the best start so far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from zae_limiter.demo.log import BucketLimit, Entry, GrantLog, LimitLog, Moment
from zae_limiter.models.limit import Limit

MS = 1000


class Window(NamedTuple):
    """The fullest window of one limit of one bucket."""

    key: BucketLimit
    limit: Limit
    from_ms: int
    to_ms: int
    granted: int
    debts: int
    given_back: int
    windows: int  # how many there were to choose from

    @property
    def refill(self) -> float:
        """What came back over the window; for the eye only."""
        seconds = (self.to_ms - self.from_ms) / MS
        return self.limit.refill_amount * seconds / self.limit.refill_period_seconds

    @property
    def allowed(self) -> float:
        """What could be taken in the window; for the eye only."""
        return self.limit.capacity + self.refill + self.given_back

    @property
    def holds(self) -> bool:
        """The inequality above, times 1000 · period in milliseconds."""
        limit = self.limit
        period_ms = limit.refill_period_seconds * MS
        over = self.granted + self.debts - self.given_back - limit.capacity
        refill = limit.refill_amount * (self.to_ms - self.from_ms)
        return 1000 * (over * period_ms - refill) < period_ms


Violation = Window


def check_invariant(log: GrantLog, limits: Mapping[BucketLimit, Limit]) -> list[Violation]:
    """The worst window of every limit that let too much through."""
    return [window for window in fullest_windows(log, limits) if not window.holds]


def fullest_windows(log: GrantLog, limits: Mapping[BucketLimit, Limit]) -> list[Window]:
    """For every limit that granted anything, the window in which it granted most."""
    return [
        _fullest(key, limits[key], entries) for key, entries in log.limits.items() if entries.grants
    ]


class _Sums:
    """Tokens of entries by one of their moments."""

    def __init__(self, entries: Iterable[Entry], when: Callable[[Moment], int]) -> None:
        ordered = sorted((when(entry.moment), entry.tokens) for entry in entries)
        self._times = [time for time, _ in ordered]
        self._totals = [0, *accumulate(tokens for _, tokens in ordered)]

    def before(self, time_ms: int) -> int:
        return self._totals[bisect_left(self._times, time_ms)]

    def until(self, time_ms: int) -> int:
        return self._totals[bisect_right(self._times, time_ms)]


class _Edge(NamedTuple):
    """What counts before one end of a window; what lies between two ends is the difference."""

    time_ms: int
    granted: int
    debts: int
    given_back: int

    def weight(self, limit: Limit) -> int:
        """What the bucket must have held on top of its refill, times the period in ms."""
        taken = self.granted + self.debts - self.given_back
        return taken * limit.refill_period_seconds * MS - self.time_ms * limit.refill_amount


def _fullest(key: BucketLimit, limit: Limit, log: LimitLog) -> Window:
    starts, ends = _starts(log), _ends(log)
    lightest, (start, end) = starts[0], (starts[0], ends[0])
    most, begun, windows = end.weight(limit) - start.weight(limit), 0, 0
    for upto in ends:
        while begun < len(starts) and starts[begun].time_ms <= upto.time_ms:
            lightest = min(lightest, starts[begun], key=lambda edge: edge.weight(limit))
            begun += 1
        windows += begun
        taken = upto.weight(limit) - lightest.weight(limit)
        if taken > most:
            most, start, end = taken, lightest, upto
    return Window(
        key,
        limit,
        start.time_ms,
        end.time_ms,
        end.granted - start.granted,
        end.debts - start.debts,
        end.given_back - start.given_back,
        windows,
    )


def _starts(log: LimitLog) -> list[_Edge]:
    granted = _Sums(log.grants, lambda moment: moment.first_ms)
    debts = _Sums(log.debts, lambda moment: moment.first_ms)
    written = _Sums(log.credits, lambda moment: moment.done_ms)
    stamps = {entry.moment.first_ms for entry in (*log.grants, *log.debts)}
    return [
        _Edge(stamp, granted.before(stamp), debts.before(stamp), written.before(stamp))
        for stamp in sorted(stamps)
    ]


def _ends(log: LimitLog) -> list[_Edge]:
    granted = _Sums(log.grants, lambda moment: moment.last_ms)
    debts = _Sums(log.debts, lambda moment: moment.done_ms)
    begun = _Sums(log.credits, lambda moment: moment.first_ms)
    latest_begin = latest_done = 0
    ends: dict[int, _Edge] = {}  # of one stamp the last, which knows them all
    for moment in sorted((entry.moment for entry in log.grants), key=lambda each: each.last_ms):
        latest_begin = max(latest_begin, moment.first_ms)
        latest_done = max(latest_done, moment.done_ms)
        ends[moment.last_ms] = _Edge(
            moment.last_ms,
            granted.until(moment.last_ms),
            debts.before(latest_begin),
            begun.until(latest_done),
        )
    return list(ends.values())

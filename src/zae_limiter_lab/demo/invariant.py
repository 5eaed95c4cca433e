"""Check that no limit admitted too much, from the callers' log alone and in whole numbers.

For each limit of each bucket, and for every window from the stamp ``a`` of a grant or debt to the
stamp ``b`` of a grant::

    granted + debts  <  capacity + refill · (b − a) + given back + 1/1000 token

- *granted*: tokens of admissions whose stamps lie in the window, both ends included.
- *debts*: what calls cost beyond their estimate. A debt is not an admission and is never refused,
  but the tokens it took cannot be admitted. It counts if it was certainly written after the
  window began and before one of the window's grants.
- *given back*: credits that may have been written after the window's first charge and before
  its last grant. Where the log leaves the order open, the limiter gets the benefit of the doubt.
- *1/1000 token*: stores count in thousandths and round down at both ends of the window.

Why it must hold: before the first charge of the window, in the order of the store's writes, the
bucket held at most its capacity; after its last grant, at least zero; in between, only refill and
credits added tokens. Grants with equal stamps, or stamped out of order, do not change that.

Every term is a sum up to ``b`` minus a sum before ``a``, so the fullest of all windows is found in
one pass: for each end, the best start so far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from zae_limiter.models.limit import Limit
from zae_limiter_lab.demo.log import BucketLimit, GrantLog, LimitLog, LogEntry, Moment

MS_PER_SECOND = 1000
MILLI = 1000  # thousandths in a token


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
        seconds = (self.to_ms - self.from_ms) / MS_PER_SECOND
        return self.limit.refill_amount * seconds / self.limit.refill_period_seconds

    @property
    def allowed(self) -> float:
        """Tokens that may be taken in the window; rounded, for display only."""
        return self.limit.capacity + self.refill + self.given_back

    @property
    def holds(self) -> bool:
        """Whether the inequality above holds; multiplied by 1000 · period in ms, to stay exact."""
        limit = self.limit
        period_ms = limit.refill_period_seconds * MS_PER_SECOND
        over = self.granted + self.debts - self.given_back - limit.capacity
        refill = limit.refill_amount * (self.to_ms - self.from_ms)
        return MILLI * (over * period_ms - refill) < period_ms


Violation = Window


def check_invariant(log: GrantLog, limits: Mapping[BucketLimit, Limit]) -> list[Violation]:
    """Return the worst window of every limit that admitted too much."""
    return [window for window in fullest_windows(log, limits) if not window.holds]


def fullest_windows(log: GrantLog, limits: Mapping[BucketLimit, Limit]) -> list[Window]:
    """Return, for every limit with grants, the window that comes closest to the bound."""
    return [
        _fullest(key, limits[key], entries) for key, entries in log.limits.items() if entries.grants
    ]


class _Sums:
    """Cumulative tokens of log entries, ordered by one of their three times."""

    def __init__(self, entries: Iterable[LogEntry], when: Callable[[Moment], int]) -> None:
        ordered = sorted((when(entry.moment), entry.tokens) for entry in entries)
        self._times = [time for time, _ in ordered]
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
        """Tokens taken beyond the refill, times the period in ms to stay exact."""
        taken = self.granted + self.debts - self.given_back
        return (
            taken * limit.refill_period_seconds * MS_PER_SECOND - self.time_ms * limit.refill_amount
        )


def _fullest(key: BucketLimit, limit: Limit, log: LimitLog) -> Window:
    starts, ends = _starts(log), _ends(log)
    best_start, (start, end) = starts[0], (starts[0], ends[0])
    most_taken, earlier_starts, windows = end.weight(limit) - start.weight(limit), 0, 0
    for candidate in ends:
        while earlier_starts < len(starts) and starts[earlier_starts].time_ms <= candidate.time_ms:
            best_start = min(
                best_start, starts[earlier_starts], key=lambda edge: edge.weight(limit)
            )
            earlier_starts += 1
        windows += earlier_starts
        taken = candidate.weight(limit) - best_start.weight(limit)
        if taken > most_taken:
            most_taken, start, end = taken, best_start, candidate
    return Window(
        key=key,
        limit=limit,
        from_ms=start.time_ms,
        to_ms=end.time_ms,
        granted=end.granted - start.granted,
        debts=end.debts - start.debts,
        given_back=end.given_back - start.given_back,
        windows=windows,
    )


def _starts(log: LimitLog) -> list[_Edge]:
    """Return the edges where a window may start: the earliest stamps of grants and debts."""
    granted = _Sums(log.grants, lambda moment: moment.first_ms)
    debts = _Sums(log.debts, lambda moment: moment.first_ms)
    written = _Sums(log.credits, lambda moment: moment.done_ms)
    stamps = {entry.moment.first_ms for entry in (*log.grants, *log.debts)}
    return [
        _Edge(stamp, granted.before(stamp), debts.before(stamp), written.before(stamp))
        for stamp in sorted(stamps)
    ]


def _ends(log: LimitLog) -> list[_Edge]:
    """Return the edges where a window may end: the latest stamps of grants."""
    granted = _Sums(log.grants, lambda moment: moment.last_ms)
    debts = _Sums(log.debts, lambda moment: moment.done_ms)
    started = _Sums(log.credits, lambda moment: moment.first_ms)
    latest_start = latest_done = 0
    ends: dict[int, _Edge] = {}  # of equal stamps the last, which includes the others
    for moment in sorted((entry.moment for entry in log.grants), key=lambda moment: moment.last_ms):
        latest_start = max(latest_start, moment.first_ms)
        latest_done = max(latest_done, moment.done_ms)
        ends[moment.last_ms] = _Edge(
            moment.last_ms,
            granted.until(moment.last_ms),
            debts.before(latest_start),
            started.until(latest_done),
        )
    return list(ends.values())

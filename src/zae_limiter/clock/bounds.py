"""The bounds that a server's answers set to its time.

The rules: docs/contributing/clocks.md.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.clock.course import FAR_OFF_NS

_SECOND_NS = 1_000_000_000
# A Date header has whole seconds: the true time is up to a second later.
DATE_RESOLUTION_NS = _SECOND_NS
# Bounds of this age are replaced, after enough answers to be as tight again.
_GENERATION_NS = 60 * _SECOND_NS
_GENERATION_ANSWERS = 64
# 50 ppm, the usual drift of a quartz: bounds widen by it as they age. A clock that drifts more is
# off by the difference, for at most two generations.
_DRIFT_DIVISOR = 20_000
# Front ends on NTP may differ by this much. An answer further outside the bounds is not used.
_SLACK_NS = 20_000_000
# A host and a front end on NTP differ by this: 2 and 1 ms from the true time. A host this close
# to the bounds moves to their edge. The middle would be further off if only one bound is tight.
_HOST_SLACK_NS = 3_000_000
# A rival must last this long, so that a briefly wrong front end changes nothing.
_RIVAL_LASTS_NS = 5 * _SECOND_NS
# A rival must lead by so many votes; by more if the host's clock supports the bounds.
_LEAD = 3
_LEAD_OVER_HOST = 8
# At the start, the first answer and one that agrees are enough.
_LEAD_AT_START = 2
_NOTHING = 2**63  # nanoseconds: wider than any offset


class Interval(NamedTuple):
    """Offsets (server time minus time since boot) that are possible."""

    low_ns: int = -_NOTHING
    high_ns: int = _NOTHING

    def both(self, other: Interval) -> Interval:
        """Return the highest low and the lowest high, which may have crossed."""
        return Interval(max(self.low_ns, other.low_ns), min(self.high_ns, other.high_ns))

    def uncrossed(self) -> Interval:
        """Return the interval, or its middle if low is above high: front ends differ a little."""
        if self.low_ns <= self.high_ns:
            return self
        return Interval(self.middle_ns, self.middle_ns)

    def loosened(self, by_ns: int) -> Interval:
        return Interval(self.low_ns - by_ns, self.high_ns + by_ns)

    def agrees_with(self, other: Interval) -> bool:
        """Return whether both intervals allow a common offset, give or take the slack."""
        return self.low_ns <= other.high_ns + _SLACK_NS and other.low_ns <= self.high_ns + _SLACK_NS

    def contains(self, offset_ns: int) -> bool:
        return self.low_ns <= offset_ns <= self.high_ns

    @property
    def middle_ns(self) -> int:
        return (self.low_ns + self.high_ns) // 2


class _Rival(NamedTuple):
    """An interval that contradicts the bounds, and the number of answers by which it leads."""

    interval: Interval
    since_ns: int
    votes: int = 1


class OffsetBounds:
    """The offset of a server's clock, bounded by every answer. Not thread-safe.

    ``answers`` counts all answers of the newest generation, also those without new bounds.
    """

    def __init__(self) -> None:
        self.is_known = False
        self.answers = 0
        self._newest = Interval()
        self._older = Interval()
        self._began_ns = 0
        self._loosened_ns = 0
        self._rival: _Rival | None = None

    def take(self, answer: Interval, now_ns: int, host_ns: int) -> None:
        """Use one answer; ``now_ns`` is of the boot clock, ``host_ns`` is the host's offset."""
        self.answers += 1
        self._loosen(now_ns)
        bounds = self.interval(host_ns)
        is_inside = answer.agrees_with(bounds)
        self._vote(answer, is_inside, now_ns)
        if is_inside and self.is_known:
            if self._is_over(now_ns):
                self._begin(now_ns, self._newest)
            self._newest = self._newest.both(answer)
        elif is_inside:
            self._start_with(answer, now_ns)
        elif self._rival is not None and self._has_won(self._rival, bounds, now_ns, host_ns):
            self._start_with(self._rival.interval, now_ns)

    def interval(self, host_ns: int) -> Interval:
        """Return the bounds in force; until a server was heard, the host's time ± 2 s."""
        if not self.is_known:
            return Interval(host_ns, host_ns).loosened(FAR_OFF_NS)
        return self._newest.both(self._older).uncrossed()

    def target_ns(self, host_ns: int) -> int:
        """Return the offset to aim at: the host's while it is possible, otherwise the middle."""
        bounds = self.interval(host_ns)
        if bounds.loosened(_HOST_SLACK_NS).contains(host_ns):
            return min(max(host_ns, bounds.low_ns), bounds.high_ns)
        return bounds.middle_ns

    def urgent_from_ns(self, date_ns: int, host_ns: int) -> int:
        """Return from when on an answer with this Date, if sent then, contradicts the bounds."""
        if self._rival is not None or not self.is_known:
            return 0  # every answer votes
        return date_ns + DATE_RESOLUTION_NS - self.interval(host_ns).low_ns

    def _is_over(self, now_ns: int) -> bool:
        return now_ns - self._began_ns >= _GENERATION_NS and self.answers >= _GENERATION_ANSWERS

    def _begin(self, now_ns: int, older: Interval) -> None:
        """Begin a generation of bounds."""
        self._newest, self._older = Interval(), older
        self._began_ns, self.answers = now_ns, 0

    def _start_with(self, interval: Interval, now_ns: int) -> None:
        self._begin(now_ns, Interval())
        self._newest = interval
        self._rival, self.is_known = None, True

    def _loosen(self, now_ns: int) -> None:
        by_ns = max(0, now_ns - self._loosened_ns) // _DRIFT_DIVISOR
        if by_ns:
            self._loosened_ns = now_ns
            self._newest = self._newest.loosened(by_ns)
            self._older = self._older.loosened(by_ns)
            if self._rival is not None:
                interval = self._rival.interval.loosened(by_ns)
                self._rival = self._rival._replace(interval=interval)

    def _vote(self, answer: Interval, is_inside: bool, now_ns: int) -> None:
        rival = self._rival
        if rival is None:
            self._rival = None if is_inside else _Rival(answer, now_ns)
        elif not answer.agrees_with(rival.interval.uncrossed()):
            left = rival._replace(votes=rival.votes - 1)
            self._rival = left if left.votes else None
        elif not is_inside:
            interval = rival.interval.both(answer)
            self._rival = rival._replace(interval=interval, votes=rival.votes + 1)

    def _has_won(self, rival: _Rival, bounds: Interval, now_ns: int, host_ns: int) -> bool:
        if not self.is_known:
            return rival.votes >= _LEAD_AT_START
        lead = _LEAD_OVER_HOST if bounds.contains(host_ns) else _LEAD
        return rival.votes >= lead and now_ns - rival.since_ns >= _RIVAL_LASTS_NS

"""Time in epoch milliseconds that does not jump when the host's clock is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from zae_limiter.concurrency.locks import SignalSafeLock
from zae_limiter.exceptions import ValidationError

Clock = Callable[[], int]

_MS = 1_000_000  # nanoseconds
# A second reading of the clock costs as much as the first.
_CHECK_EVERY_NS = 1_000_000_000
# More than NTP leaves between hosts, and than the resolution of a Date header.
_TOLERATED_NS = 2_000_000_000
# A step that is taken back within this time, or a single wrong Date, changes nothing.
_ADOPTED_AFTER_NS = 5_000_000_000
_DATE_RESOLUTION_NS = 1_000_000_000


class HostClock:
    """The host's time, counted by the time since boot and corrected only after lasting steps.

    A step forwards would hand out tokens for time that did not pass; a step backwards would
    freeze every bucket until the clock has caught up. But the processes of a machine must agree
    in the end: a host clock that stays more than 2 s ahead for 5 s is adopted, and one that stays
    as far behind is waited for at half speed.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns or _since_boot_ns
        self._anchor_ns = wall_ns() - self._boot_ns()
        self._check_at_ns = 0
        self._off_since_ns: int | None = None
        self._checked_ns = 0

    def __call__(self) -> int:
        boot_ns = self._boot_ns()
        if boot_ns >= self._check_at_ns:
            self._check(boot_ns)
        return (self._anchor_ns + boot_ns) // _MS

    @property
    def anchor_ns(self) -> int:
        """What is added to the time since boot."""
        return self._anchor_ns

    def _check(self, boot_ns: int) -> None:
        """Compare with the host's time; once a second, since it costs a second reading."""
        self._check_at_ns = boot_ns + _CHECK_EVERY_NS
        anchor_ns = self._wall_ns() - boot_ns
        if abs(anchor_ns - self._anchor_ns) <= _TOLERATED_NS:
            self._off_since_ns = None
        elif self._off_since_ns is None:
            self._off_since_ns = boot_ns
        elif boot_ns - self._off_since_ns >= _ADOPTED_AFTER_NS:
            slowest_ns = self._anchor_ns - (boot_ns - self._checked_ns) // 2
            self._anchor_ns = max(anchor_ns, slowest_ns)
        self._checked_ns = boot_ns


class ServerClock:
    """The server's time, counted by the time since boot; the host's until a server has answered.

    A Date header has a resolution of 1 s and is taken somewhere between sending and receiving,
    so the server's time is known as a range. Time that lies more than 2 s outside of it is wrong:
    the first range is believed at once, later ones when they contradict for 5 s. Forwards is a
    step, backwards is waited for at half speed. The host's own clock no longer matters then.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] | None = None,
    ) -> None:
        self.boot_ns = boot_ns or _since_boot_ns
        self._host = HostClock(wall_ns, self.boot_ns)
        self._time_line: _TimeLine | None = None
        self._off_since_ns: int | None = None
        self._lock = SignalSafeLock()

    def __call__(self) -> int:
        line = self._time_line
        if line is None:
            return self._host()
        anchor_ns, _, excess_ns = line
        if excess_ns:
            return line.at_ns(self.boot_ns()) // _MS
        return (anchor_ns + self.boot_ns()) // _MS

    def observe(self, date_ms: int, sent_ns: int, received_ns: int) -> None:
        """Take in a Date header, written at some time between the two readings of ``boot_ns``."""
        with self._lock:
            earliest_ns = date_ms * _MS - received_ns
            latest_ns = date_ms * _MS + _DATE_RESOLUTION_NS - sent_ns
            line = self._time_line or _TimeLine(self._host.anchor_ns)
            anchor_ns = line.at_ns(received_ns) - received_ns
            off = not earliest_ns - _TOLERATED_NS <= anchor_ns <= latest_ns + _TOLERATED_NS
            middle_ns = (earliest_ns + latest_ns) // 2
            if self._time_line is None:
                self._time_line = _TimeLine(middle_ns if off else anchor_ns)
            elif not off:
                self._off_since_ns = None
            elif self._off_since_ns is None:
                self._off_since_ns = received_ns
            elif received_ns - self._off_since_ns >= _ADOPTED_AFTER_NS:
                excess_ns = max(0, anchor_ns - middle_ns)
                self._time_line = _TimeLine(middle_ns + excess_ns, received_ns, excess_ns)


class _TimeLine(NamedTuple):
    """Time as a function of the time since boot; ``excess_ns`` is lost by running at half speed."""

    anchor_ns: int
    since_ns: int = 0
    excess_ns: int = 0

    def at_ns(self, boot_ns: int) -> int:
        lost_ns = min(self.excess_ns, (boot_ns - self.since_ns) // 2) if self.excess_ns else 0
        return self.anchor_ns + boot_ns - lost_ns


_since_boot_ns: Callable[[], int] = time.monotonic_ns  # it may stop while the machine sleeps
if hasattr(time, "CLOCK_BOOTTIME"):
    _since_boot_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


def check_clock(clock: object) -> Clock:
    """Return the user's clock if it returns whole milliseconds; raises ValidationError."""
    if not callable(clock):
        raise ValidationError("clock", clock, "must be a callable that returns epoch milliseconds")
    now = clock()
    if type(now) is not int:
        raise ValidationError("clock", now, "must return epoch milliseconds as a whole number")
    return clock

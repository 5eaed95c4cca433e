"""The clock of a store that several hosts share, set by the answers of its server."""

from __future__ import annotations

import time
from collections.abc import Callable

from zae_limiter.clock.bounds import DATE_RESOLUTION_NS, Interval, OffsetBounds
from zae_limiter.clock.course import MS, Course, host_offset_ns, since_boot_ns
from zae_limiter.runtime.locks import SignalSafeLock

_NEVER_NS = 2**63  # of the boot clock
# Smaller changes of the aim are ignored: stamps count milliseconds.
_FINE_NS = 100_000
# Placeholders while there is no course to read: each reading then takes the lock.
_UNREAD = Course(_NEVER_NS, 0, _NEVER_NS, 0)
_CHANGING = Course(_NEVER_NS, 0, _NEVER_NS, 0, divisor=1)


class ServerClock:
    """The server's time as its answers bound it, counted by the time since boot.

    The host's clock counts while it lies within the bounds, otherwise their middle. Until the
    first reading the clock may jump there; then it slews at 10 %, steps if it is more than 2 s
    behind, and waits at half speed if it is more than 2 s ahead. No reading is before an earlier
    one.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] | None = None,
    ) -> None:
        self.boot_ns = boot_ns or since_boot_ns
        self._wall_ns = wall_ns
        self._lock = SignalSafeLock()
        self._bounds = OffsetBounds()
        self._course = self._last_course = _UNREAD
        # Most answers repeat the date of the answer before. Only the last of these matters, as an
        # upper bound, and only at the next date. The client counts them and notes the moment at
        # which the last request was sent. From `urgent_from_ns` on it reports every answer.
        self.repeated = 0
        self.repeated_sent_ns = 0
        self.urgent_from_ns = 0
        self._date_ns = 0

    def __call__(self) -> int:
        boot_ns = self.boot_ns()  # before the course: see _change_course
        course = self._course
        if boot_ns >= course.settled_ns:
            return (course.offset_ns + boot_ns) // MS
        return self._unsettled_ms(boot_ns, course)

    def __repr__(self) -> str:
        if self._course is _UNREAD:  # reading it here would end the time in which it may jump
            return "ServerClock(not read yet)"
        return f"ServerClock({self()} ms since 1970)"

    def observe(self, date_ms: int, sent_ns: int, received_ns: int) -> None:
        """Use a Date header, written at some time between the two readings of ``boot_ns``."""
        date_ns = date_ms * MS
        with self._lock:
            bounds = self._bounds
            host_ns = host_offset_ns(self._wall_ns, self.boot_ns)
            if self.repeated:
                latest_ns = self._date_ns + DATE_RESOLUTION_NS - self.repeated_sent_ns
                bounds.answers += self.repeated - 1
                bounds.take(Interval(high_ns=latest_ns), received_ns, host_ns)
                self.repeated = 0
            earliest_ns, latest_ns = date_ns - received_ns, date_ns + DATE_RESOLUTION_NS - sent_ns
            bounds.take(Interval(earliest_ns, latest_ns), received_ns, host_ns)
            self._date_ns = date_ns
            self.urgent_from_ns = bounds.urgent_from_ns(date_ns, host_ns)
            if bounds.is_known and self._course is not _UNREAD:
                self._aim_at(bounds.target_ns(host_ns))

    def _aim_at(self, offset_ns: int) -> None:
        if abs(offset_ns - self._last_course.offset_ns) >= _FINE_NS:
            while not self._change_course(offset_ns):
                pass

    def _change_course(self, offset_ns: int) -> bool:
        """Go to another offset from now on; False if a signal handler read the clock meanwhile.

        Readers take no lock, and read the boot clock first. A reader of the old course therefore
        began before ``_CHANGING`` was set, and its reading is not after the new course's start.
        """
        self._course = _CHANGING
        now_ns = self.boot_ns()
        course = Course.towards(offset_ns, now_ns, self._last_course.at_ns(now_ns))
        if self._course is not _CHANGING:
            return False
        self._course = self._last_course = course
        return True

    def _unsettled_ms(self, boot_ns: int, course: Course) -> int:
        if course is _UNREAD or course is _CHANGING:
            with self._lock:
                if self._course is _UNREAD:
                    self._start()
                elif self._course is _CHANGING:  # left by a fork, or interrupted by this reader
                    self._course = self._last_course
                course = self._course
        return course.at_ns(boot_ns) // MS

    def _start(self) -> None:
        """End the time in which the clock may jump."""
        host_ns = host_offset_ns(self._wall_ns, self.boot_ns)
        offset_ns = self._bounds.target_ns(host_ns)
        now_ns = self.boot_ns()
        self._course = self._last_course = Course(now_ns, offset_ns, now_ns, now_ns + offset_ns)

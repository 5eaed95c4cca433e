"""The clock of a store that the processes of one machine share, with one offset for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from zae_limiter.clock.course import FAR_OFF_NS, MS, Course, host_offset_ns, since_boot_ns

_SECOND_NS = 1_000_000_000
# A write is stamped with an offset that is at most this old.
REREAD_NS = _SECOND_NS
# A step of the host's clock that is reversed within this time changes nothing.
_LASTS_NS = 5 * _SECOND_NS
# A correction begins this much later, when every process has read it, with 2 s to spare.
_AHEAD_NS = 3 * _SECOND_NS
# Without a boot id a stored offset may come from an earlier boot. Such an offset is hardly this
# close to the host's.
_CLOSE_NS = 10 * _SECOND_NS


class SharedTime(NamedTuple):
    """The time of all processes of a machine: a course, and the offset that follows it."""

    course: Course
    next_since_ns: int | None = None
    next_offset_ns: int = 0

    @classmethod
    def at_offset(cls, offset_ns: int) -> SharedTime:
        return cls(Course(0, offset_ns, 0, offset_ns))

    def course_at(self, boot_ns: int) -> Course:
        since_ns = self.next_since_ns
        if since_ns is None or boot_ns < since_ns:
            return self.course
        return Course.towards(self.next_offset_ns, since_ns, self.course.at_ns(since_ns))

    @property
    def final_offset_ns(self) -> int:
        return self.course.offset_ns if self.next_since_ns is None else self.next_offset_ns

    def corrected(self, offset_ns: int, boot_ns: int) -> SharedTime:
        """Return a time that stays the same for 3 s, and then goes to the offset."""
        return SharedTime(self.course_at(boot_ns), boot_ns + _AHEAD_NS, offset_ns)


class SharedClock:
    """The host's time as the processes of a machine agreed on it, counted by the time since boot.

    The store sets the clock to its ``SharedTime``, at least once a second while it writes. If the
    host's clock was set and stays more than 2 s off for 5 s, any process corrects the stored time.
    A smaller difference stays, which is the same for all. Until a store is open, the clock shows
    the host's time.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] | None = None,
    ) -> None:
        self.boot_ns = boot_ns or since_boot_ns
        self._wall_ns = wall_ns
        self._off_since_ns: int | None = None
        self._off_to_ns = 0  # the host's offset then
        self.reread_at_ns = 0
        self.set(SharedTime.at_offset(host_offset_ns(wall_ns, self.boot_ns)))

    def __call__(self) -> int:
        boot_ns = self.boot_ns()
        settled_ns, until_ns, offset_ns = self._steady
        if settled_ns <= boot_ns < until_ns:
            return (offset_ns + boot_ns) // MS
        return self._time.course_at(boot_ns).at_ns(boot_ns) // MS

    def __repr__(self) -> str:
        return f"SharedClock({self()} ms since 1970)"

    def set(self, shared: SharedTime) -> None:
        """Follow the stored time from now on."""
        self._time = shared
        boot_ns = self.boot_ns()
        self.reread_at_ns = boot_ns + REREAD_NS
        course, until_ns = shared.course_at(boot_ns), shared.next_since_ns
        if until_ns is None or until_ns <= boot_ns:
            until_ns = boot_ns + 2**62  # for good
        self._steady = (course.settled_ns, until_ns, course.offset_ns)

    def correction(self, shared: SharedTime) -> SharedTime | None:
        """Return a corrected time if the host's clock has been far off for 5 s, else None."""
        boot_ns = self.boot_ns()
        host_ns = host_offset_ns(self._wall_ns, self.boot_ns)
        is_pending = shared.next_since_ns is not None and boot_ns < shared.next_since_ns
        if is_pending or abs(host_ns - shared.final_offset_ns) <= FAR_OFF_NS:
            self._off_since_ns = None
        elif self._off_since_ns is None or abs(host_ns - self._off_to_ns) > FAR_OFF_NS:
            self._off_since_ns, self._off_to_ns = boot_ns, host_ns
        elif boot_ns - self._off_since_ns >= _LASTS_NS:
            self._off_since_ns = None
            return shared.corrected(host_ns, boot_ns)
        return None

    def first_time(self, stored: SharedTime | None, *, is_this_boot: bool) -> SharedTime:
        """Return the stored time, or the host's if the stored one may be of an earlier boot."""
        host_ns = host_offset_ns(self._wall_ns, self.boot_ns)
        if stored is not None and (
            is_this_boot or abs(host_ns - stored.final_offset_ns) <= _CLOSE_NS
        ):
            return stored
        return SharedTime.at_offset(host_ns)

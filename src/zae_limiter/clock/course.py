"""Time as a function of the time since boot."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

Clock = Callable[[], int]

# On systems without CLOCK_BOOTTIME the clock may stop while the machine sleeps.
since_boot_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    since_boot_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)

MS = 1_000_000  # nanoseconds
# NTP leaves a smaller difference between hosts, and a Date header is more precise. A larger offset
# is an error that must be corrected quickly.
FAR_OFF_NS = 2_000_000_000
# 10 %: a correction of 0.5 s takes 5 s, and tokens accrue at most a tenth faster or slower.
_SLEW_DIVISOR = 10
# Half speed: the fastest correction at which buckets do not seem to stand still.
_WAIT_DIVISOR = 2
# A reading of the wall clock that took longer was interrupted, and is taken again.
_PROMPT_NS = 50_000
_MOST_READINGS = 4


class Course(NamedTuple):
    """A line of time that reaches its offset without ever going back.

    At ``since_ns`` of the boot clock it is ``start_ns``; from ``settled_ns`` on it is the boot
    clock plus ``offset_ns``. In between, one nanosecond in ``divisor`` is added or left out.
    """

    settled_ns: int
    offset_ns: int
    since_ns: int
    start_ns: int
    divisor: int = _SLEW_DIVISOR

    @classmethod
    def towards(cls, offset_ns: int, since_ns: int, start_ns: int) -> Course:
        """Slew to the offset; step if it is far ahead, and run at half speed if far behind."""
        gap_ns = offset_ns - (start_ns - since_ns)
        if gap_ns > FAR_OFF_NS:
            return cls(since_ns, offset_ns, since_ns, since_ns + offset_ns)
        divisor = _WAIT_DIVISOR if gap_ns < -FAR_OFF_NS else _SLEW_DIVISOR
        return cls(since_ns + abs(gap_ns) * divisor, offset_ns, since_ns, start_ns, divisor)

    def at_ns(self, boot_ns: int) -> int:
        """Return the time; before ``since_ns`` it is ``start_ns``."""
        if boot_ns >= self.settled_ns:
            return self.offset_ns + boot_ns
        elapsed_ns = max(0, boot_ns - self.since_ns)
        corrected_ns = elapsed_ns // self.divisor
        if self.offset_ns < self.start_ns - self.since_ns:
            corrected_ns = -corrected_ns
        return self.start_ns + elapsed_ns + corrected_ns


def host_offset_ns(wall_ns: Callable[[], int], boot_ns: Callable[[], int]) -> int:
    """Return the wall clock minus the time since boot, exact to some microseconds."""
    readings_left = _MOST_READINGS
    while True:
        before_ns = boot_ns()
        host_ns = wall_ns()
        after_ns = boot_ns()
        readings_left -= 1
        if after_ns - before_ns <= _PROMPT_NS or not readings_left:
            return host_ns - (before_ns + after_ns) // 2

"""Host time in epoch milliseconds that does not jump when somebody sets the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MS = 1_000_000


def host_clock() -> Clock:
    """A clock anchored to the time since boot: wall-clock steps after this call do not show.

    A step forwards would hand out tokens for time that did not pass; a step backwards would
    freeze every bucket until the clock has caught up.
    """
    anchor_ns = time.time_ns() - time.clock_gettime_ns(_BOOT)
    read_ns = time.clock_gettime_ns
    boot = _BOOT

    def now_ms() -> int:
        return (anchor_ns + read_ns(boot)) // _MS

    return now_ms

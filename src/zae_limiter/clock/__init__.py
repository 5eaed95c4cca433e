"""Time in epoch milliseconds: one for all clients of a store, whatever their hosts' clocks do.

Every clock here counts by the time since boot and adds an offset; they differ in where the offset
comes from: the host (memory), a row of the file (SQLite), the server's answers (DynamoDB).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
    from zae_limiter.clock.course import Clock
    from zae_limiter.clock.host import HostClock
    from zae_limiter.clock.server import ServerClock
    from zae_limiter.clock.shared import SharedClock, SharedTime

__all__ = [
    "Clock",
    "Deadline",
    "HostClock",
    "ServerClock",
    "SharedClock",
    "SharedTime",
    "check_clock",
    "since_boot_ns",
]
_MODULES = {
    "Clock": "course",
    "HostClock": "host",
    "ServerClock": "server",
    "SharedClock": "shared",
    "SharedTime": "shared",
}

# A request that starts in the last tenth would most likely be cut off by the deadline.
_RESERVED_SHARE = 0.1

# On systems without CLOCK_BOOTTIME it may stop while the machine sleeps.
since_boot_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    since_boot_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Import a clock on first use: functions read time and keep no clock."""
        from zae_limiter._lazy import import_name

        return import_name(__name__, name, _MODULES)


def check_clock(clock: object) -> Clock:
    """Return the user's clock if it returns whole milliseconds; raises ValidationError."""
    from zae_limiter.clock.host import HostClock
    from zae_limiter.clock.server import ServerClock
    from zae_limiter.clock.shared import SharedClock

    if isinstance(clock, HostClock | ServerClock | SharedClock):
        return clock  # not read here: until its first reading a ServerClock may still jump
    if not callable(clock):
        raise ValidationError("clock", clock, "must be a callable that returns epoch milliseconds")
    now = clock()
    if type(now) is not int:
        raise ValidationError("clock", now, "must return epoch milliseconds as a whole number")
    return clock


class Deadline:
    """The moment of the monotonic clock by which a call must be decided."""

    __slots__ = ("_seconds", "at")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; zero or less when it has passed."""
        return self.at - time.monotonic()

    def is_nearly_over(self, after_s: float = 0.0) -> bool:
        """Whether too little time is left, now or in ``after_s`` seconds, to begin something."""
        return self.left() - after_s < self._seconds * _RESERVED_SHARE

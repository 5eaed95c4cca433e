"""Time in epoch milliseconds: one for all clients of a store, whatever their hosts' clocks do.

Every clock here counts by the time since boot and adds an offset; they differ in where the offset
comes from: the host (memory), a row of the file (SQLite), the server's answers (DynamoDB).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter._lazy import import_name
from zae_limiter.clock.course import Deadline, since_boot_ns
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


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Import a clock on first use: functions read time and keep no clock."""
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

"""Time in epoch milliseconds: one for all clients of a store, whatever their hosts' clocks do.

Every clock here counts by the time since boot and adds an offset. They differ in the source of the
offset: the host (memory), a row of the file (SQLite), the server's answers (DynamoDB).
"""

from __future__ import annotations

from zae_limiter.clock.course import Clock, since_boot_ns
from zae_limiter.clock.deadline import Deadline
from zae_limiter.clock.host import HostClock
from zae_limiter.clock.server import ServerClock
from zae_limiter.clock.shared import SharedClock, SharedTime
from zae_limiter.exceptions import ValidationError

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


def check_clock(clock: object) -> Clock:
    """Return the user's clock if it returns whole milliseconds; raises ValidationError."""
    if isinstance(clock, HostClock | ServerClock | SharedClock):
        return clock  # not read here: until its first reading a ServerClock may still jump
    if not callable(clock):
        raise ValidationError("clock", clock, "must be a callable that returns epoch milliseconds")
    now = clock()
    if type(now) is not int:
        raise ValidationError("clock", now, "must return epoch milliseconds as a whole number")
    return clock

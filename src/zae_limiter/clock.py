"""Host time in epoch milliseconds that does not jump when somebody sets the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from zae_limiter.exceptions import ValidationError

Clock = Callable[[], int]

_MS = 1_000_000
_CHECK_EVERY_NS = 1_000_000_000
_TOLERATED_NS = 2_000_000_000
_ADOPTED_AFTER_NS = 5_000_000_000


class HostClock:
    """Anchored to the time since boot, and corrected only when the host's time has really moved.

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


def _since_boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


if not hasattr(time, "CLOCK_BOOTTIME"):  # elsewhere: time that may stand still in sleep
    _since_boot_ns = time.monotonic_ns


def check_clock(clock: object) -> Clock:
    """A clock of the user's: it must return whole milliseconds."""
    if not callable(clock):
        raise ValidationError("clock", clock, "must be a callable that returns epoch milliseconds")
    now = clock()
    if type(now) is not int:
        raise ValidationError("clock", now, "must return epoch milliseconds as a whole number")
    return clock

"""The clock of a process that shares its store with no other."""

from __future__ import annotations

import time
from collections.abc import Callable

from zae_limiter.clock.course import FAR_OFF_NS, MS, since_boot_ns

_CHECK_EVERY_NS = 1_000_000_000  # a check costs a second reading of a clock
# A step that is reversed within this time changes nothing.
_ADOPTED_AFTER_NS = 5_000_000_000


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
        self._boot_ns = boot_ns or since_boot_ns
        self._anchor_ns = wall_ns() - self._boot_ns()
        self._check_at_ns = 0
        self._off_since_ns: int | None = None
        self._checked_ns = 0

    def __call__(self) -> int:
        boot_ns = self._boot_ns()
        if boot_ns >= self._check_at_ns:
            self._check(boot_ns)
        return (self._anchor_ns + boot_ns) // MS

    def __repr__(self) -> str:
        return f"HostClock({(self._anchor_ns + self._boot_ns()) // MS} ms since 1970)"

    def _check(self, boot_ns: int) -> None:
        """Compare with the host's time."""
        self._check_at_ns = boot_ns + _CHECK_EVERY_NS
        anchor_ns = self._wall_ns() - boot_ns
        if abs(anchor_ns - self._anchor_ns) <= FAR_OFF_NS:
            self._off_since_ns = None
        elif self._off_since_ns is None:
            self._off_since_ns = boot_ns
        elif boot_ns - self._off_since_ns >= _ADOPTED_AFTER_NS:
            slowest_ns = self._anchor_ns - (boot_ns - self._checked_ns) // 2
            self._anchor_ns = max(anchor_ns, slowest_ns)
        self._checked_ns = boot_ns

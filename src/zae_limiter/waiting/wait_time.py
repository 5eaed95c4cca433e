"""The time that an acquire may wait, in the store's time and in that of its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from zae_limiter.clock import since_boot_ns
from zae_limiter.clock.course import Clock
from zae_limiter.clock.host import HostClock
from zae_limiter.clock.server import ServerClock
from zae_limiter.clock.shared import SharedClock

LONGEST_S = 10 * 366 * 86_400.0  # stands for an infinite timeout, which timers do not accept
_SHORTEST_S = 0.001  # between two looks at a user's clock that is late when a sleep ends


@runtime_checkable
class Steered(Protocol):
    """A clock that is moved by hand, and calls its listeners then."""

    def listen(self, on_change: Callable[[], object]) -> None:
        """Call ``on_change`` whenever the clock was moved."""

    def unlisten(self, on_change: Callable[[], object]) -> None:
        """Stop calling ``on_change``."""


class WaitTime:
    """The time that one acquire may wait.

    Sleeps and the deadline are measured by the time since boot, since the store's clock may be
    corrected meanwhile. A clock of the user is taken literally instead: the wait is over when that
    clock says so. Unless the clock is ``Steered``, the wait is also over after the real time.
    """

    __slots__ = ("_ahead_s", "_ends_s", "clock", "ends_ms", "is_injected")

    def __init__(self, seconds: float, clock: Clock) -> None:
        seconds = min(seconds, LONGEST_S)
        self.clock = clock
        self.is_injected = not isinstance(clock, HostClock | ServerClock | SharedClock)
        self.ends_ms = clock() + int(seconds * 1000)
        self._ends_s = _boot_s() + seconds
        self._ahead_s = 0.0
        self.synchronize()

    def synchronize(self) -> int:
        """Compare the store's time with that of the process, and return the store's time."""
        now_ms = self.clock()
        self._ahead_s = now_ms / 1000 - _boot_s()
        return now_ms

    def until_ms(self, now_ms: int) -> int:
        """Return the deadline in the store's time; ``now_ms`` is the stamp in that time."""
        if self.is_injected:
            return self.ends_ms
        return now_ms + max(0, int((self._ends_s - _boot_s()) * 1000))

    def left_s(self) -> float:
        """Return the seconds until the deadline; negative when it has passed."""
        real_s = self._ends_s - _boot_s()
        if not self.is_injected:
            return real_s
        injected_s = (self.ends_ms - self.clock()) / 1000
        return injected_s if isinstance(self.clock, Steered) else min(injected_s, real_s)

    def seconds_to(self, moment_ms: int) -> float:
        """Return the seconds to a moment of the store's time; negative when it has passed."""
        if not self.is_injected:
            return moment_ms / 1000 - self._ahead_s - _boot_s()
        injected_s = (moment_ms - self.clock()) / 1000
        return injected_s if injected_s <= 0 else max(injected_s, _SHORTEST_S)


def _boot_s() -> float:
    return since_boot_ns() / 1e9

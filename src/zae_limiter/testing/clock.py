"""A fake clock, which moves only when a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

DEFAULT_START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z


class FakeClock:
    """A clock for ``clock=`` that returns epoch milliseconds. Threads may share it.

    >>> clock = FakeClock()
    >>> limiter = RateLimiter(repository, clock=clock)
    >>> clock.advance(minutes=5)
    """

    def __init__(self, now_ms: int = DEFAULT_START_MS) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    def __call__(self) -> int:
        return self._now_ms

    def advance(
        self,
        *,
        ms: int = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> int:
        """Move the clock forward, or back by a negative amount; return the new time in ms."""
        total_hours = 24 * days + hours
        total_seconds = 60 * (60 * total_hours + minutes) + seconds
        with self._lock:
            self._now_ms += ms + round(1000 * total_seconds)
            now_ms = self._now_ms
        self._tell()
        return now_ms

    def set(self, now_ms: int) -> None:
        """Set the clock to a moment."""
        with self._lock:
            self._now_ms = now_ms
        self._tell()

    @property
    def waiting(self) -> int:
        """The number of acquires that wait for the clock to move."""
        with self._lock:
            return len(self._listeners)

    def listen(self, on_change: Callable[[], object]) -> None:
        """Call ``on_change`` whenever the clock was moved. Waiting acquires use this."""
        with self._lock:
            self._listeners.append(on_change)

    def unlisten(self, on_change: Callable[[], object]) -> None:
        """Remove a listener, if present."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(on_change)

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for on_change in listeners:
            on_change()

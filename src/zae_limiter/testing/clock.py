"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading

DEFAULT_START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z


class FakeClock:
    """Epoch milliseconds for ``clock=``; shared safely between threads.

    >>> clock = FakeClock()
    >>> limiter = RateLimiter(repository, clock=clock)
    >>> clock.advance(minutes=5)
    """

    def __init__(self, now_ms: int = DEFAULT_START_MS) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()

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
        """Move on, or back by a negative amount; returns the new time in milliseconds."""
        total_hours = 24 * days + hours
        total_seconds = 60 * (60 * total_hours + minutes) + seconds
        with self._lock:
            self._now_ms += ms + round(1000 * total_seconds)
            return self._now_ms

    def set(self, now_ms: int) -> None:
        """Jump to a moment."""
        with self._lock:
            self._now_ms = now_ms

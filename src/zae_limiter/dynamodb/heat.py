"""Items that the store has refused to write for throughput, and whether that is being seen to."""

from __future__ import annotations

import threading
import time

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.view import Spot

WARM_S = 5.0
REST_S = 2.0
MOST_SPOTS = 10_000


class Heat:
    """Shared by all tasks and threads."""

    def __init__(self) -> None:
        self._until_s: dict[Spot, float] = {}
        self._rests_until_s: dict[Spot, float] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def note(self, spot: Spot) -> None:
        with self._lock:
            if len(self._until_s) >= MOST_SPOTS:
                self._until_s.clear()
            self._until_s[spot] = time.monotonic() + WARM_S

    def is_hot(self, spot: Spot) -> bool:
        """Whether that was a moment ago."""
        if not self._until_s:
            return False
        return time.monotonic() < self._until_s.get(spot, 0.0)

    def begin(self, spot: Spot) -> bool:
        """Do something about an item; False if that is under way or was tried a moment ago."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._rests_until_s.get(spot, 0.0):
                return False
            if len(self._rests_until_s) >= MOST_SPOTS:
                self._rests_until_s.clear()
            self._rests_until_s[spot] = now_s + REST_S
            return True

    def end(self, spot: Spot) -> None:
        """Something was done about it."""
        with self._lock:
            self._until_s.pop(spot, None)

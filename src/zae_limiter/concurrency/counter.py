"""Counting from several threads."""

from __future__ import annotations

import threading
import time


class Counter:
    """A count that threads may add to."""

    __slots__ = ("_due", "_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._due = 0.0
        self._lock = threading.Lock()

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self.value += amount

    def is_due(self, every_s: float) -> bool:
        """True at most once in ``every_s`` seconds."""
        with self._lock:
            now = time.monotonic()
            if now < self._due:
                return False
            self._due = now + every_s
            return True

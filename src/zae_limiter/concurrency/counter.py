"""Counting from several threads."""

from __future__ import annotations

import threading


class Counter:
    """A count that threads may add to."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self.value += amount

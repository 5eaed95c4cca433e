"""Rendered live parts, kept for a moment: a floor under the work that polling can cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FLOOR_S = 1.9  # a page asks every 2 s; whoever asks more often gets the same answer again
MAX_KEPT = 64


class LiveParts:
    """The last answer to each live address; any number of tabs cost one refresh."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._parts: dict[str, tuple[float, str]] = {}

    def get(self, address: str, render: Callable[[], str]) -> str:
        """Return the part of an address, rendered at most every two seconds."""
        with self._lock:
            rendering = self._locks.setdefault(address, threading.Lock())
        with rendering:  # requests for the same part wait for one rendering
            kept = self._parts.get(address)
            if kept is not None and self._seconds() - kept[0] < FLOOR_S:
                return kept[1]
            text = render()
            with self._lock:
                self._parts.pop(address, None)
                self._parts[address] = self._seconds(), text
                while len(self._parts) > MAX_KEPT:
                    oldest = next(iter(self._parts))
                    del self._parts[oldest]
                    self._locks.pop(oldest, None)
            return text

    def clear(self) -> None:
        """Forget all parts: an action has changed something."""
        with self._lock:
            self._parts.clear()

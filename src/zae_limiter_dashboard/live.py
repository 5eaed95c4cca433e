"""Rendered live parts, kept for a moment: a floor under the work that polling can cause."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FLOOR_S = 1.9  # a page asks every 2 s; whoever asks more often gets the same answer again
MAX_KEPT = 64


@dataclass(slots=True)
class LivePart:
    """The last answer to one address, and the lock under which it is rendered."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rendered_at: float = -math.inf
    text: str = ""


class LiveParts:
    """The last answer to each live address; any number of tabs cost one refresh."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._parts: dict[str, LivePart] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def get(self, address: str, render: Callable[[], str]) -> str:
        """Return the part of an address, rendered at most every two seconds."""
        part = self._part(address)
        with part.lock:  # requests for the same part wait for one rendering
            if self._seconds() - part.rendered_at >= FLOOR_S:
                part.text = render()
                part.rendered_at = self._seconds()
            return part.text

    def _part(self, address: str) -> LivePart:
        """Return the part of an address, which is then the newest; the oldest one is dropped."""
        with self._lock:
            part = self._parts.pop(address, None) or LivePart()
            self._parts[address] = part
            while len(self._parts) > MAX_KEPT:
                del self._parts[next(iter(self._parts))]
            return part

    def clear(self) -> None:
        """Forget all parts: an action has changed something."""
        with self._lock:
            self._parts.clear()

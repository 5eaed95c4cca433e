"""Until when a call has to be decided."""

from __future__ import annotations

import time

NEARLY = 0.1


class Deadline:
    """A moment of the monotonic clock."""

    __slots__ = ("_at", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds; zero or less when it has passed."""
        return self._at - time.monotonic()

    def is_nearly_over(self, after_s: float = 0.0) -> bool:
        """Whether there is, or will be by then, too little left to begin something."""
        return self.left() - after_s < self._seconds * NEARLY

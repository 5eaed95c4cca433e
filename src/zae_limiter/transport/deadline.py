"""Until when a call has to be decided."""

from __future__ import annotations

import time


class Deadline:
    """A moment of the monotonic clock."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds; zero or less when it has passed."""
        return self._at - time.monotonic()

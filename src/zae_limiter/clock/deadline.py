"""The deadline of a call."""

from __future__ import annotations

import time

# A request that starts in the last tenth would most likely be cut off by the deadline.
_RESERVED_SHARE = 0.1


class Deadline:
    """The moment of the monotonic clock by which a call must be decided."""

    __slots__ = ("_seconds", "at")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds; zero or less when the deadline has passed."""
        return self.at - time.monotonic()

    def is_nearly_over(self, after_s: float = 0.0) -> bool:
        """Return whether too little time remains, after ``after_s`` seconds, for a request."""
        return self.left() - after_s < self._seconds * _RESERVED_SHARE

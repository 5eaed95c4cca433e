"""Pauses between attempts, within a deadline."""

from __future__ import annotations

from zae_limiter.clock import Deadline
from zae_limiter.clock.backoff import Backoff
from zae_limiter.runtime.calls import asleep

FIRST_PAUSE_S = 0.01  # about one round trip
LONGEST_PAUSE_S = 0.5


class BoundedBackoff:
    """A backoff that ends when a deadline is near."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def pause(self) -> bool:
        """Wait; return False at once if no time is left for another attempt and its answer."""
        pause_s = self._backoff.next_s()
        if self._deadline.is_nearly_over(pause_s):
            return False
        await asleep(pause_s)
        return True

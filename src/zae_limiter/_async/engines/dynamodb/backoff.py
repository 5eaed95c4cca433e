"""Waiting before another try, each time longer, never as long as somebody else."""

from __future__ import annotations

import random

from zae_limiter.transport.aio import asleep  # unasync: remove
from zae_limiter.transport.deadline import Deadline

# sync: from zae_limiter.transport.threads import sleep

FIRST_S = 0.01
LONGEST_S = 0.5


class Backoff:
    """Full jitter until a deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._longest_s = FIRST_S

    async def pause(self) -> bool:
        """False if there is no time for another try, and for its answer."""
        pause_s = random.uniform(0, self._longest_s)
        if self._deadline.is_nearly_over(pause_s):
            return False
        self._longest_s = min(2 * self._longest_s, LONGEST_S)
        await asleep(pause_s)
        return True

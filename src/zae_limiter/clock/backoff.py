"""How long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Random pauses between attempts, whose upper bound doubles from ``first_s`` to ``longest_s``.

    The pauses are random so that clients which failed together do not try again together.
    """

    __slots__ = ("_bound_s", "_longest_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._bound_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        """Return the seconds to wait before the next attempt."""
        pause_s = random.uniform(0, self._bound_s)
        self._bound_s = min(2 * self._bound_s, self._longest_s)
        return pause_s

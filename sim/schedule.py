"""Simulated time: calls in the order of their moments, and processes that stop and die in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Call = Callable[[], object]


class Schedule:
    """Runs calls at their moments; those of one moment in the order in which they were made."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._due: list[tuple[int, int, Call]] = []
        self._order = count()

    def at(self, moment_ms: int, call: Call) -> None:
        heapq.heappush(self._due, (moment_ms, next(self._order), call))

    def after(self, delay_ms: int, call: Call) -> None:
        self.at(self.now_ms + delay_ms, call)

    def run_until(self, end_ms: int | None = None) -> None:
        """Run all calls up to a moment, or until none is left."""
        while self._due and (end_ms is None or self._due[0][0] <= end_ms):
            self.now_ms, _, call = heapq.heappop(self._due)
            call()
            self.after_each_call()
        if end_ms is not None:
            self.now_ms = end_ms

    def after_each_call(self) -> None:
        """Do, or check, what is due at every moment."""


class Process:
    """What it is to do later is not done when it is dead, and waits while it is stopped."""

    def __init__(self, schedule: Schedule) -> None:
        self.is_alive, self.stopped_until_ms = True, 0
        self._schedule = schedule

    def at(self, moment_ms: int, call: Call) -> None:
        def run() -> None:
            if not self.is_alive:
                return
            if self._schedule.now_ms < self.stopped_until_ms:
                self._schedule.at(self.stopped_until_ms, run)
            else:
                call()

        self._schedule.at(max(moment_ms, self._schedule.now_ms), run)

    def after(self, delay_ms: int, call: Call) -> None:
        self.at(self._schedule.now_ms + delay_ms, call)

"""Measurements of promises in seconds, on a machine whose cores may be busy with other work."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

# An idle machine needs 0.02 s. Less than half a second: a promise of 0.5 s that is kept only
# after twice that time is a broken one.
SLACK_S = 0.4
# Short beside every promise, so that a moment without a core is noticed; costs 0.3 % of a core.
_NAP_S = 0.005


class Stopwatch:
    """Measures a block, and how late the machine woke a thread that slept meanwhile.

    This is for code that waits. Code that computes is measured in CPU time (``time.thread_time``)
    instead, since it would itself delay the sleeping thread.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.late_s = 0.0
        self._stopped = threading.Event()
        self._sleeper = threading.Thread(target=self._sleep, daemon=True)

    def __enter__(self) -> Self:
        self._sleeper.start()
        self._started = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.monotonic() - self._started
        self._stopped.set()
        self._sleeper.join()

    def within(self, promised_s: float) -> bool:
        """Tell whether the block took at most the promised time, plus the delay of the machine."""
        return self.seconds < promised_s + SLACK_S + self.late_s

    def __repr__(self) -> str:
        return f"<{self.seconds:.2f} s, the machine was late by {self.late_s:.2f} s>"

    def _sleep(self) -> None:
        stopped = False
        while not stopped:
            due = time.monotonic() + _NAP_S
            stopped = self._stopped.wait(_NAP_S)
            self.late_s += max(0.0, time.monotonic() - due)

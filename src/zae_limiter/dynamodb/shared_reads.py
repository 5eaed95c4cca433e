"""One read of a bucket's shards at a time: whoever wants the same waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.dynamodb.member import Wakeable
from zae_limiter.dynamodb.view import Place

LOST_S = 10.0  # who has not come back by then never will


class SharedReads:
    """Shared by all tasks and threads."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers
        self._waiting: dict[Place, tuple[float, list[Wakeable]]] = {}

    def join(self, place: Place, waiter: Callable[[], Wakeable]) -> Wakeable | None:
        """None if the caller is to read; otherwise what it waits with until that is done."""
        with self._lock:
            reading = self._waiting.get(place)
            if reading is None or time.monotonic() - reading[0] > LOST_S:
                self._waiting[place] = (time.monotonic(), [])
                return None
            reading[1].append(waiter())
            return reading[1][-1]

    def done(self, place: Place) -> None:
        with self._lock:
            _, waiting = self._waiting.pop(place, (0.0, []))
        for each in waiting:
            each.wake()

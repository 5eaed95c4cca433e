"""Counting what the engine does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from itertools import count

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.models.stats import StoreStats

_NAMES = tuple(field.name for field in fields(StoreStats))


class Tally:
    """Counts what happens all the time: ``add`` draws the next of all numbers, without a lock."""

    __slots__ = ("_numbers", "add")

    def __init__(self) -> None:
        self._numbers = count()
        self.add: Callable[[], int] = self._numbers.__next__

    def value(self) -> int:
        """Only its ``count(7)`` tells where a count stands and leaves it there."""
        return int(repr(self._numbers)[6:-1])


class Counters:
    """Counts that any thread may add to.

    ``called`` notes a request to the store, ``granted`` one charge, written as it was asked for.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_NAMES, 0)
        self._calls, self._granted = Tally(), Tally()
        self._writes: dict[tuple[int, int], Tally] = {}
        self.called, self.granted = self._calls.add, self._granted.add
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def add(self, **amounts: int) -> None:
        with self._lock:
            counts = self._counts
            for name, amount in amounts.items():
                counts[name] += amount

    def wrote(self, plain_moves: int, clamp_moves: int) -> None:
        """A request to change a bucket."""
        tally = self._writes.get((plain_moves, clamp_moves))
        if tally is None:
            tally = self._writes.setdefault((plain_moves, clamp_moves), Tally())
        tally.add()

    def group(self, size: int) -> None:
        """A write for so many callers."""
        with self._lock:
            self._counts["groups"] += 1
            self._counts["grouped"] += size
            self._counts["largest_group"] = max(self._counts["largest_group"], size)

    def read(self) -> StoreStats:
        """Without the lock: a signal handler may wait for others who want it."""
        counts, granted = self._counts.copy(), self._granted.value()
        counts["calls"] += self._calls.value()
        counts["charges"] += granted
        counts["granted"] += granted
        for (plain_moves, clamp_moves), tally in self._writes.copy().items():
            writes = tally.value()
            counts["writes"] += writes
            counts["plain_moves"] += writes * plain_moves
            counts["clamp_moves"] += writes * clamp_moves
        return StoreStats(**counts)

"""Counting what the engine does."""

from __future__ import annotations

import threading
from dataclasses import fields

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.models.stats import StoreStats

_NAMES = tuple(field.name for field in fields(StoreStats))


class Counters:
    """Counts that any thread may add to."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_NAMES, 0)
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def add(self, **amounts: int) -> None:
        with self._lock:
            counts = self._counts
            for name, amount in amounts.items():
                counts[name] += amount

    def called(self) -> None:
        """A request to the store."""
        with self._lock:
            self._counts["calls"] += 1

    def wrote(self, plain_moves: int, clamp_moves: int) -> None:
        """A request to change a bucket."""
        with self._lock:
            counts = self._counts
            counts["writes"] += 1
            counts["plain_moves"] += plain_moves
            if clamp_moves:
                counts["clamp_moves"] += clamp_moves

    def granted(self) -> None:
        """One charge, as it was asked for."""
        with self._lock:
            counts = self._counts
            counts["charges"] += 1
            counts["granted"] += 1

    def group(self, size: int) -> None:
        """A write for so many callers."""
        with self._lock:
            self._counts["groups"] += 1
            self._counts["grouped"] += size
            self._counts["largest_group"] = max(self._counts["largest_group"], size)

    def read(self) -> StoreStats:
        return StoreStats(**self._counts.copy())  # no lock: a signal handler may wait for others

"""Counters of what the engine does, for ``get_stats()``."""

from __future__ import annotations

from typing import Any

from zae_limiter.concurrency.locks import LockFreeCount, SignalSafeLock
from zae_limiter.models.backend import StoreStats

_BREAKER = "breaker_"  # how the names of counts that the circuit breaker keeps begin
_NAMES: tuple[str, ...] = tuple(
    name for name in StoreStats.__match_args__ if not name.startswith(_BREAKER)
)


class _WriteCounts(dict[tuple[int, int], LockFreeCount]):
    """Writes by their number of plain and clamp moves."""

    def __missing__(self, kind: tuple[int, int]) -> LockFreeCount:
        return self.setdefault(kind, LockFreeCount())


class Counters:
    """Counts that any thread may add to.

    ``called`` counts a request to the store, ``granted`` a charge that was applied alone,
    ``rejected`` one that was rejected alone, ``refused`` a write whose condition did not hold, and
    ``writes[plain, clamp].add`` a write to a bucket with so many moves of each kind.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = dict.fromkeys(_NAMES, 0)
        self._calls, self._granted = LockFreeCount(), LockFreeCount()
        self._refused, self._rejected = LockFreeCount(), LockFreeCount()
        self.called, self.granted = self._calls.add, self._granted.add
        self.refused, self.rejected = self._refused.add, self._rejected.add
        self.writes = _WriteCounts()
        self._lock = SignalSafeLock()

    def add(self, **amounts: int) -> None:
        with self._lock:
            counts = self._counts
            for name, amount in amounts.items():
                counts[name] += amount

    def group(self, size: int) -> None:
        """Count a write for several callers."""
        with self._lock:
            self._counts["groups"] += 1
            self._counts["grouped"] += size
            self._counts["largest_group"] = max(self._counts["largest_group"], size)

    def read(self) -> StoreStats:
        """Return all counts. Takes no lock: a signal handler could not wait for it."""
        counts: dict[str, Any] = self._counts.copy()
        granted, rejected = self._granted.value(), self._rejected.value()
        counts["calls"] += self._calls.value()
        counts["charges"] += granted + rejected
        counts["granted"] += granted
        counts["rejected"] += rejected
        counts["refused_writes"] += self._refused.value()
        for (plain_moves, clamp_moves), counter in self.writes.copy().items():
            writes = counter.value()
            counts["writes"] += writes
            counts["plain_moves"] += writes * plain_moves
            counts["clamp_moves"] += writes * clamp_moves
        return StoreStats(**counts)

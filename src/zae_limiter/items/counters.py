"""Counters of the engine's work, for ``get_stats()``."""

from __future__ import annotations

from typing import Any

from zae_limiter.models.backend import StoreStats
from zae_limiter.runtime.locks import LockFreeCount, SignalSafeLock

_RARE = (
    "retries",
    "refused_writes",
    "unknown_writes",
    "repeated_writes",
    "groups",
    "grouped",
    "largest_group",
    "lost_refunds",
    "splits",
    "merges",
    "gathers",
)


class Counters:
    """Counts that any thread may add to, by the names of ``StoreStats``.

    The attributes count events of every acquire. ``failed`` are charges without a decision: a
    charge is granted, rejected or failed.
    """

    def __init__(self) -> None:
        self.calls = LockFreeCount()
        self.granted = LockFreeCount()
        self.rejected = LockFreeCount()
        self.failed = LockFreeCount()
        self.cached_rejections = LockFreeCount()
        self.settlements = LockFreeCount()
        self.writes = LockFreeCount()
        self.plain_moves = LockFreeCount()
        self.clamp_moves = LockFreeCount()
        self._rare: dict[str, int] = dict.fromkeys(_RARE, 0)
        self._lock = SignalSafeLock()

    def add(self, **amounts: int) -> None:
        """Count rare events."""
        with self._lock:
            for name, amount in amounts.items():
                self._rare[name] += amount

    def group(self, size: int) -> None:
        """Count a write for several callers."""
        with self._lock:
            self._rare["groups"] += 1
            self._rare["grouped"] += size
            self._rare["largest_group"] = max(self._rare["largest_group"], size)

    def read(self) -> StoreStats:
        """Return all counts. Takes no lock: a signal handler could not wait for it."""
        rare: dict[str, Any] = self._rare.copy()
        granted, rejected = self.granted.value(), self.rejected.value()
        return StoreStats(
            calls=self.calls.value(),
            charges=granted + rejected + self.failed.value(),
            granted=granted,
            rejected=rejected,
            cached_rejections=self.cached_rejections.value(),
            settlements=self.settlements.value(),
            writes=self.writes.value(),
            plain_moves=self.plain_moves.value(),
            clamp_moves=self.clamp_moves.value(),
            **rare,
        )

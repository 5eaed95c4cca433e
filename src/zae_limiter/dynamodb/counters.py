"""Counters of the engine's work, for ``get_stats()``."""

from __future__ import annotations

from typing import Any

from zae_limiter.concurrency.locks import SignalSafeLock
from zae_limiter.models.backend import StoreStats

_BREAKER = "breaker_"  # the names of counts that the circuit breaker keeps begin like this
_NAMES: tuple[str, ...] = tuple(
    name for name in StoreStats.__match_args__ if not name.startswith(_BREAKER)
)


class Counters:
    """Counts that any thread may add to, by the names of ``StoreStats``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = dict.fromkeys(_NAMES, 0)
        self._lock = SignalSafeLock()

    def add(self, **amounts: int) -> None:
        """Count rare events; the methods below count those of every acquire, in less time."""
        with self._lock:
            counts = self._counts
            for name, amount in amounts.items():
                counts[name] += amount

    def call(self) -> None:
        """Count a call of the store."""
        with self._lock:
            self._counts["calls"] += 1

    def cached_rejection(self) -> None:
        """Count a charge that was rejected without a call."""
        with self._lock:
            self._counts["charges"] += 1
            self._counts["rejected"] += 1
            self._counts["cached_rejections"] += 1

    def write(self, plain_moves: int, clamp_moves: int) -> None:
        """Count a write that is sent now."""
        with self._lock:
            counts = self._counts
            counts["writes"] += 1
            counts["plain_moves"] += plain_moves
            counts["clamp_moves"] += clamp_moves

    def decided(self, granted: int, rejected: int, failed: int, settlements: int) -> None:
        """Count the charges of a group by their end, and its settlements."""
        with self._lock:
            counts = self._counts
            counts["charges"] += granted + rejected + failed
            counts["granted"] += granted
            counts["rejected"] += rejected
            counts["settlements"] += settlements

    def group(self, size: int) -> None:
        """Count a write for several callers."""
        with self._lock:
            self._counts["groups"] += 1
            self._counts["grouped"] += size
            self._counts["largest_group"] = max(self._counts["largest_group"], size)

    def read(self) -> StoreStats:
        """Return all counts. Takes no lock: a signal handler could not wait for it."""
        counts: dict[str, Any] = self._counts.copy()
        return StoreStats(**counts)

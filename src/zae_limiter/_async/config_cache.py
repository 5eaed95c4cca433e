"""Resolved limits, remembered for a while, negative answers included."""

from __future__ import annotations

import threading
from typing import NamedTuple

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.models.config import CacheStats, OnUnavailable
from zae_limiter.resolution import Resolved

MAX_ENTRIES = 50_000
_SKEW_MS = 1000  # stamps of concurrent callers may be a little apart

Whose = tuple[str, str]  # namespace id and entity
What = tuple[str, int]  # resource and bucket TTL multiplier


class _Entry(NamedTuple):
    resolved: Resolved
    from_ms: int
    until_ms: int


class ConfigCache:
    """What applies to each entity on each resource; shared by scoped repositories.

    A change made through the same repository evicts what it concerns at once. A read that was
    under way at that moment must not bring the old state back: ``put`` takes the generation seen
    before it.
    """

    def __init__(self, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self._ttl_ms = int(ttl_seconds * 1000)
        self._entries: dict[Whose, dict[What, _Entry]] = {}
        self._size = 0
        self._policies: dict[str, OnUnavailable | None] = {}
        self._hits = 0
        self._misses = 0
        self.generation = 0
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for the sake of signal handlers

    def get(self, whose: Whose, what: What, now_ms: int) -> Resolved | None:
        """The remembered answer if it is young enough."""
        with self._lock:
            entries = self._entries.get(whose)
            entry = None if entries is None else entries.get(what)
            if entry is not None and entry.from_ms <= now_ms < entry.until_ms:
                self._hits += 1
                return entry.resolved
            self._misses += 1
            return None

    def put(
        self, whose: Whose, what: What, resolved: Resolved, now_ms: int, generation: int
    ) -> None:
        """Remember, unless something was changed since ``generation`` was read."""
        with self._lock:
            if generation != self.generation:
                return
            self._policies[whose[0]] = resolved.on_unavailable
            if self._ttl_ms <= 0:
                return
            while self._size >= MAX_ENTRIES:
                self._drop(next(iter(self._entries)))
            entries = self._entries.setdefault(whose, {})
            self._size += what not in entries
            entries[what] = _Entry(resolved, now_ms - _SKEW_MS, now_ms + self._ttl_ms)

    def policy(self, namespace_id: str) -> OnUnavailable | None:
        """What the system defaults last said about outages; does not age, as it is for them."""
        return self._policies.get(namespace_id)

    def set_policy(self, namespace_id: str, policy: OnUnavailable | None) -> None:
        """The system defaults were changed here."""
        with self._lock:
            self._policies[namespace_id] = policy

    def evict(self, namespace_id: str, entity_id: str) -> None:
        """One entity has changed."""
        with self._lock:
            self.generation += 1
            self._drop((namespace_id, entity_id))

    def clear(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self.generation += 1
            self._entries.clear()
            self._size = 0

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, self._size, self.ttl_seconds)

    def _drop(self, whose: Whose) -> None:
        self._size -= len(self._entries.pop(whose, ()))

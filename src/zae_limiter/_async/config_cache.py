"""Resolved limits, remembered for a while, negative answers included."""

from __future__ import annotations

import threading
from typing import NamedTuple

from zae_limiter.models.config import CacheStats, OnUnavailable
from zae_limiter.resolution import Resolved

MAX_ENTITIES = 50_000
_SKEW_MS = 1000  # stamps of concurrent callers may be a little apart

Scope = tuple[str, int]  # namespace id and bucket TTL multiplier
Whose = tuple[Scope, str]  # and the entity


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
        self._entries: dict[Whose, dict[str, _Entry]] = {}
        self._policies: dict[str, OnUnavailable | None] = {}
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0
        self.generation = 0

    def get(self, whose: Whose, resource: str, now_ms: int) -> Resolved | None:
        """The remembered answer if it is young enough."""
        with self._lock:
            resources = self._entries.get(whose)
            entry = None if resources is None else resources.get(resource)
            if entry is not None and entry.from_ms <= now_ms < entry.until_ms:
                self._hits += 1
                return entry.resolved
            self._misses += 1
            return None

    def put(
        self, whose: Whose, resource: str, resolved: Resolved, now_ms: int, generation: int
    ) -> None:
        """Remember, unless something was changed since ``generation`` was read."""
        with self._lock:
            if generation != self.generation:
                return
            self._policies[whose[0][0]] = resolved.on_unavailable
            if self._ttl_ms <= 0:
                return
            if whose not in self._entries and len(self._entries) >= MAX_ENTITIES:
                del self._entries[next(iter(self._entries))]
            entry = _Entry(resolved, now_ms - _SKEW_MS, now_ms + self._ttl_ms)
            self._entries.setdefault(whose, {})[resource] = entry

    def policy(self, namespace_id: str) -> OnUnavailable | None:
        """What the system defaults last said about outages; does not age, as it is for them."""
        return self._policies.get(namespace_id)

    def evict(self, scope: Scope, entity_id: str) -> None:
        """One entity has changed."""
        with self._lock:
            self.generation += 1
            self._entries.pop((scope, entity_id), None)

    def clear(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self.generation += 1
            self._entries.clear()
            self._policies.clear()

    def stats(self) -> CacheStats:
        with self._lock:
            size = sum(map(len, self._entries.values()))
            return CacheStats(self._hits, self._misses, size, self.ttl_seconds)

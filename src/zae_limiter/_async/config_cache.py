"""A cache of resolved limits, negative answers included."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.concurrency.locks import SignalSafeLock
from zae_limiter.models.config import OnUnavailable
from zae_limiter.resolution import Resolved

if TYPE_CHECKING:
    from zae_limiter.models.backend import CacheStats

MAX_ENTRIES = 50_000  # bounds memory; the entity cached first is dropped first
_SKEW_MS = 1000  # concurrent callers may have read their stamps a little before the entry's

EntityKey = tuple[str, str]  # namespace id and entity
ResourceKey = tuple[str, int]  # resource and bucket TTL multiplier, which is part of the answer


class _Entry(NamedTuple):
    resolved: Resolved
    from_ms: int
    until_ms: int


class ConfigCache:
    """Limits in force of each entity on each resource; shared by scoped repositories.

    A change made through the same repository evicts the entries that it concerns at once. A read
    that was under way at that moment must not store the old state again: ``put`` takes the
    generation from before the read.
    """

    def __init__(self, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self._ttl_ms = int(ttl_seconds * 1000)
        self._entries: dict[EntityKey, dict[ResourceKey, _Entry]] = {}
        self._size = 0
        self._policies: dict[str, OnUnavailable | None] = {}
        self._hits = 0
        self._misses = 0
        self.generation = 0
        self._lock = SignalSafeLock()

    def get(self, entity: EntityKey, resource: ResourceKey, now_ms: int) -> Resolved | None:
        """Return the cached answer unless it has expired."""
        with self._lock:
            entries = self._entries.get(entity)
            entry = None if entries is None else entries.get(resource)
            if entry is not None and entry.from_ms <= now_ms < entry.until_ms:
                self._hits += 1
                return entry.resolved
            self._misses += 1
            return None

    def put(
        self,
        entity: EntityKey,
        resource: ResourceKey,
        resolved: Resolved,
        now_ms: int,
        generation: int,
    ) -> None:
        """Store an answer, unless an entry was evicted since ``generation`` was read."""
        with self._lock:
            if generation != self.generation:
                return
            self._policies[entity[0]] = resolved.on_unavailable
            if self._ttl_ms <= 0:
                return
            while self._size >= MAX_ENTRIES:
                self._drop(next(iter(self._entries)))
            entries = self._entries.setdefault(entity, {})
            self._size += resource not in entries
            entries[resource] = _Entry(resolved, now_ms - _SKEW_MS, now_ms + self._ttl_ms)

    def policy(self, namespace_id: str) -> OnUnavailable | None:
        """Return the outage policy last read; it does not expire, since it is for outages."""
        return self._policies.get(namespace_id)

    def set_policy(self, namespace_id: str, policy: OnUnavailable | None) -> None:
        """Store the outage policy after a change of the system defaults."""
        with self._lock:
            self._policies[namespace_id] = policy

    def evict(self, namespace_id: str, entity_id: str) -> None:
        """Drop the entries of one entity."""
        with self._lock:
            self.generation += 1
            self._drop((namespace_id, entity_id))

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self.generation += 1
            self._entries.clear()
            self._size = 0

    def stats(self) -> CacheStats:
        from zae_limiter.models.backend import CacheStats

        with self._lock:
            return CacheStats(self._hits, self._misses, self._size, self.ttl_seconds)

    def _drop(self, entity: EntityKey) -> None:
        self._size -= len(self._entries.pop(entity, ()))

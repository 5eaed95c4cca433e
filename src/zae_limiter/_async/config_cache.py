"""A cache of resolved limits, negative answers included."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.resolution import Resolved
from zae_limiter.concurrency.locks import SignalSafeLock
from zae_limiter.models.config import OnUnavailable, SharedConfig

if TYPE_CHECKING:
    from zae_limiter.models.backend import CacheStats

MAX_ENTRIES = 50_000  # bounds memory; the entity cached first is dropped first
# Where a read costs microseconds: the garbage collector visits nine objects of each entry, and
# stops the process meanwhile, for milliseconds with so many.
MAX_LOCAL_ENTRIES = 2048
MAX_SHARED = 10_000  # resources whose shared levels are kept: more than a store has
_SKEW_MS = 1000  # concurrent callers may have read their stamps a little before the entry's

# Shares of the TTL. An entry is renewed by one caller in its last fifth, while the rest keep using
# it; a renewal that did not succeed is tried again after a twentieth: four times before it expires.
RENEW_AFTER = 0.8
RENEW_AGAIN_AFTER = 0.05
# Levels that entities share are used for other entities for a tenth, and renewed by one caller in
# the second half of that. An entry counts its age from the older of its two reads, so that it is
# never used beyond the TTL.
SHARED_FOR = 0.1
RENEW_SHARED_AFTER = 0.05

EntityKey = tuple[str, str]  # namespace id and entity
ResourceKey = tuple[str, int]  # resource and bucket TTL multiplier, which is part of the answer


class _Entry(NamedTuple):
    resolved: Resolved
    from_ms: int
    renew_ms: int  # from then on one caller reads it again
    until_ms: int
    consistent: bool  # all levels were read at one moment

    def is_valid(self, now_ms: int) -> bool:
        return self.from_ms <= now_ms < self.until_ms


class _SharedEntry(NamedTuple):
    config: SharedConfig
    read_ms: int
    renew_ms: int


class ConfigCache:
    """Limits in force of each entity on each resource; shared by scoped repositories.

    A change made through the same repository evicts the entries that it concerns at once. A read
    that was under way at that moment must not store the old state again: ``put`` takes the
    generation from before the read.
    """

    def __init__(self, ttl_seconds: float, max_entries: int = MAX_ENTRIES) -> None:
        self.ttl_seconds = ttl_seconds
        self._max_entries = max_entries
        self._ttl_ms = int(ttl_seconds * 1000)
        # Ordered: the first key of a plain dict is searched for among the places of deleted ones.
        self._entries: OrderedDict[EntityKey, dict[ResourceKey, _Entry]] = OrderedDict()
        self._size = 0
        self._shared: dict[tuple[str, str], _SharedEntry] = {}  # by namespace id and resource
        self._policies: dict[str, OnUnavailable | None] = {}
        self._hits = 0
        self._misses = 0
        self.generation = 0
        self._lock = SignalSafeLock()

    def get(self, entity: EntityKey, resource: ResourceKey, now_ms: int) -> Resolved | None:
        """Return the cached answer; None if it has expired, or if this caller is to renew it."""
        with self._lock:
            entries = self._entries.get(entity)
            entry = None if entries is None else entries.get(resource)
            if entry is not None and entry.from_ms <= now_ms < entry.renew_ms:
                self._hits += 1
                return entry.resolved
            self._misses += 1
            if entries is not None and entry is not None and entry.is_valid(now_ms):
                again_ms = now_ms + int(self._ttl_ms * RENEW_AGAIN_AFTER) + 1
                entries[resource] = entry._replace(renew_ms=min(again_ms, entry.until_ms))
            return None

    def still_valid(self, entity: EntityKey, resource: ResourceKey, now_ms: int) -> Resolved | None:
        """Return an answer that has not expired, although it should have been renewed."""
        with self._lock:
            entry = self._entries.get(entity, {}).get(resource)
            return entry.resolved if entry is not None and entry.is_valid(now_ms) else None

    def consistent_since(
        self, entity: EntityKey, resource: ResourceKey, version: int, since_ms: int
    ) -> Resolved | None:
        """Return an answer of at least this version that was read at one moment, not earlier."""
        with self._lock:
            entry = self._entries.get(entity, {}).get(resource)
            if entry is None or not entry.consistent or entry.resolved.version < version:
                return None
            return entry.resolved if entry.from_ms + _SKEW_MS >= since_ms else None

    def put(
        self,
        entity: EntityKey,
        resource: ResourceKey,
        resolved: Resolved,
        now_ms: int,
        generation: int,
        *,
        consistent: bool = False,
    ) -> None:
        """Store an answer, unless an entry was evicted since ``generation`` was read.

        ``now_ms`` is the moment before its oldest part was read.
        """
        with self._lock:
            if generation != self.generation:
                return
            self._policies[entity[0]] = resolved.on_unavailable
            if self._ttl_ms <= 0:
                return
            while self._size >= self._max_entries:
                self._drop(next(iter(self._entries)))
            entries = self._entries.setdefault(entity, {})
            self._size += resource not in entries
            entries[resource] = _Entry(
                resolved,
                now_ms - _SKEW_MS,
                now_ms + int(self._ttl_ms * RENEW_AFTER),
                now_ms + self._ttl_ms,
                consistent,
            )

    # --- levels that the entities of a resource share

    def get_shared(
        self, namespace_id: str, resource: str, now_ms: int
    ) -> tuple[SharedConfig, int] | None:
        """Return the shared levels and when they were read; None if this caller is to read them."""
        key = namespace_id, resource
        with self._lock:
            entry = self._shared.get(key)
            if entry is None or not 0 <= now_ms - entry.read_ms < self._ttl_ms * SHARED_FOR:
                return None
            if now_ms >= entry.renew_ms:
                again_ms = now_ms + int(self._ttl_ms * RENEW_SHARED_AFTER) + 1
                self._shared[key] = entry._replace(renew_ms=again_ms)
                return None
            return entry.config, entry.read_ms

    def put_shared(
        self, namespace_id: str, resource: str, config: SharedConfig, now_ms: int, generation: int
    ) -> None:
        """Store the shared levels, unless an entry was evicted since ``generation`` was read."""
        with self._lock:
            if generation != self.generation or self._ttl_ms <= 0:
                return
            while len(self._shared) >= MAX_SHARED:
                del self._shared[next(iter(self._shared))]
            renew_ms = now_ms + int(self._ttl_ms * RENEW_SHARED_AFTER)
            self._shared[namespace_id, resource] = _SharedEntry(config, now_ms, renew_ms)

    # --- outage policies

    def policy(self, namespace_id: str) -> OnUnavailable | None:
        """Return the outage policy last read; it does not expire, since it is for outages."""
        return self._policies.get(namespace_id)

    def set_policy(self, namespace_id: str, policy: OnUnavailable | None) -> None:
        """Store the outage policy after a change of the system defaults."""
        with self._lock:
            self._policies[namespace_id] = policy

    # --- eviction

    def evict(self, namespace_id: str, entity_id: str) -> None:
        """Drop the entries of one entity, and the shared levels: they hold the version."""
        with self._lock:
            self.generation += 1
            self._drop((namespace_id, entity_id))
            self._shared.clear()

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self.generation += 1
            self._entries.clear()
            self._size = 0
            self._shared.clear()

    def stats(self) -> CacheStats:
        """Return hits, misses and size."""
        from zae_limiter.models.backend import CacheStats

        with self._lock:
            return CacheStats(self._hits, self._misses, self._size, self.ttl_seconds)

    def _drop(self, entity: EntityKey) -> None:
        self._size -= len(self._entries.pop(entity, ()))

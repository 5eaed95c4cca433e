"""A cache of resolved limits, which also remembers that there are none."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.resolution import Resolved
from zae_limiter.models.config import OnUnavailable, SharedConfig
from zae_limiter.runtime.locks import SignalSafeLock

if TYPE_CHECKING:
    from zae_limiter.models.backend import CacheStats

MAX_ENTRIES = 50_000  # bounds the memory; the entity that was cached first is dropped first
# For stores whose reads cost microseconds. The garbage collector visits nine objects of each entry
# and stops the process meanwhile, which would take milliseconds with 50,000 entries.
MAX_LOCAL_ENTRIES = 2048
MAX_SHARED = 10_000  # resources whose shared levels are kept; a store has fewer
_SKEW_MS = 1000  # the stamps of concurrent callers may be a little earlier than that of the entry

# Parts of the TTL. In the last fifth of its TTL, one caller renews an entry while the others keep
# using it. A renewal that failed is tried again after a twentieth of the TTL, up to four times
# before the entry expires.
RENEW_AFTER = 0.8
RENEW_AGAIN_AFTER = 0.05
# Shared levels are used for other entities for a tenth of the TTL, and one caller renews them in
# the second half of that time. The age of an entry counts from the older of its two reads, so that
# the entry is never used beyond the TTL.
SHARED_FOR = 0.1
RENEW_SHARED_AFTER = 0.05

EntityKey = tuple[str, str]  # namespace id and entity
ResourceKey = tuple[str, int]  # resource and bucket TTL multiplier, which the limits depend on


class _Entry(NamedTuple):
    resolved: Resolved
    from_ms: int
    renew_ms: int  # from this moment on, one caller renews the entry
    until_ms: int
    consistent: bool  # whether all levels were read at one moment

    def is_valid(self, now_ms: int) -> bool:
        return self.from_ms <= now_ms < self.until_ms


class _SharedEntry(NamedTuple):
    config: SharedConfig
    read_ms: int
    renew_ms: int


class ConfigCache:
    """The limits in force of each entity on each resource. Scoped repositories share the cache.

    A change that is made through the same repository evicts the entries that it affects at once.
    A read that is under way at that moment must not store the old state again; so ``put`` takes the
    generation from before the read.
    """

    def __init__(self, ttl_seconds: float, max_entries: int = MAX_ENTRIES) -> None:
        self.ttl_seconds = ttl_seconds
        self._max_entries = max_entries
        self._ttl_ms = int(ttl_seconds * 1000)
        # A plain dict would search for its first key among the places of deleted keys.
        self._entries: OrderedDict[EntityKey, dict[ResourceKey, _Entry]] = OrderedDict()
        self._size = 0
        self._shared: dict[tuple[str, str], _SharedEntry] = {}  # by namespace id and resource
        self._policies: dict[str, OnUnavailable | None] = {}
        self._hits = 0
        self._misses = 0
        self.generation = 0
        self._lock = SignalSafeLock()

    def get(self, entity: EntityKey, resource: ResourceKey, now_ms: int) -> Resolved | None:
        """Return the cached limits; None if they have expired or this caller must renew them."""
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
        """Return cached limits that have not expired, even if they should be renewed."""
        with self._lock:
            entry = self._entries.get(entity, {}).get(resource)
            return entry.resolved if entry is not None and entry.is_valid(now_ms) else None

    def consistent_since(
        self, entity: EntityKey, resource: ResourceKey, version: int, since_ms: int
    ) -> Resolved | None:
        """Return cached limits of at least this version, read at one moment since ``since_ms``."""
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
        """Store limits, unless an entry was evicted since ``generation`` was read.

        ``now_ms`` is the moment at which the read of the oldest part began.
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
        """Return the shared levels and the time of their read; None if this caller must read."""
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
        """Return the outage policy that was read last. It never expires: outages may be long."""
        return self._policies.get(namespace_id)

    def set_policy(self, namespace_id: str, policy: OnUnavailable | None) -> None:
        """Store the outage policy after a change of the system defaults."""
        with self._lock:
            self._policies[namespace_id] = policy

    # --- eviction

    def evict(self, namespace_id: str, entity_id: str) -> None:
        """Drop the entries of one entity, and the shared levels, which contain the version."""
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

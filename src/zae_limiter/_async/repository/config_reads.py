"""Reads of configuration into the cache. Callers that need the same at once share a read."""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn, TypeVar

from zae_limiter._async.repository.context import Context
from zae_limiter.admission.resolution import Resolved, resolve
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable, ZAELimiterError
from zae_limiter.models.config import ConfigSnapshot, SharedConfig
from zae_limiter.runtime.single_flight import Flight, SingleFlight
from zae_limiter.runtime.waiter import AWaiter

LONGEST_WAIT_S = 60.0  # a waiter without a deadline looks again after this time
RENEWAL_SHARE = 0.5  # a renewal may take this part of the remaining time; the charge needs the rest

T = TypeVar("T")


class Fresh(NamedTuple):
    """A condition for a read, after a bucket was found to have seen a newer configuration.

    The read must return all levels at one moment, with at least the ``version`` that the bucket has
    seen, and must have begun at ``since_ms`` or later.
    """

    version: int
    since_ms: int


class ConfigQuery(NamedTuple):
    """The configuration that one caller needs, at which moment, and its deadline."""

    entity_id: str
    resource: str
    now_ms: int
    deadline: Deadline | None = None
    fresh: Fresh | None = None
    shared: SharedConfig | None = None


class ConfigReader:
    """Reads configuration after a miss of the cache, once for all callers of a bucket.

    One caller reads, and the others wait for it. If the read fails, one of them reads once more; if
    this read fails as well, all of them fail. If the reader is cancelled or takes too long, one of
    the others takes over.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(
        self,
        entity_id: str,
        resource: str,
        now_ms: int,
        deadline: Deadline | None = None,
        *,
        fresh: Fresh | None = None,
        shared: SharedConfig | None = None,
    ) -> Resolved:
        """Return the configuration after a miss of the cache.

        If the renewal of an entry fails, the entry is used until it expires. ``shared`` are levels
        that this call has just read for another entity.
        """
        query = ConfigQuery(entity_id, resource, now_ms, deadline, fresh, shared)
        cache = self._context.cache
        if cache.ttl_seconds <= 0 and fresh is None:  # without a cache, each call reads for itself
            return await self._load(query)
        keys = self._keys(query)
        if fresh is not None or cache.still_valid(*keys, now_ms) is None:
            return await self._read_together(query)
        if deadline is not None:
            query = query._replace(deadline=Deadline(deadline.left() * RENEWAL_SHARE))
        try:
            return await self._read_together(query)
        except InfrastructureError:
            kept = cache.still_valid(*keys, self._context.clock())
            if kept is None:
                raise
            return kept

    async def _read_together(self, query: ConfigQuery) -> Resolved:
        context, fresh = self._context, query.fresh
        keys = self._keys(query)
        has_failed = False
        while True:
            if fresh is not None:
                cached = context.cache.consistent_since(*keys, *fresh)
                if cached is not None:
                    return cached
            flight, waiter = context.config_reads.join(
                (*keys, fresh is not None), context.cache.generation, AWaiter
            )
            if waiter is None or not await landed(
                context.config_reads, flight, waiter, query.deadline
            ):
                return await self._lead(flight, query)
            if flight.result is not None and _satisfies(*flight.result, fresh):
                return flight.result[0]
            if flight.error is not None:
                if has_failed:
                    raise_for_waiter(flight.error)
                has_failed = True

    async def _lead(self, flight: Flight[tuple[Resolved, int]], query: ConfigQuery) -> Resolved:
        """Read for all waiters; the ``shared`` levels, which only this caller has, are not used."""
        result: tuple[Resolved, int] | None = None
        failure: Exception | None = None
        began_ms = query.now_ms if query.fresh is None else self._context.clock()
        try:
            resolved = await self._load(query._replace(now_ms=began_ms, shared=None))
            result = resolved, began_ms
            return resolved
        except Exception as error:
            failure = error
            raise
        finally:
            self._context.config_reads.land(flight, result, failure)

    async def _load(self, query: ConfigQuery) -> Resolved:
        """Read and cache the levels of the entity, and the shared ones if they are not cached."""
        context, cache = self._context, self._context.cache
        generation, read_ms = cache.generation, query.now_ms
        is_fresh = query.fresh is not None
        if not is_fresh and query.shared is None and cache.ttl_seconds > 0:
            snapshot, read_ms = await self._with_cached_levels(query)
        else:
            snapshot = await context.engine.configs.snapshot(
                context.namespace_id,
                query.entity_id,
                query.resource,
                shared=query.shared,
                fresh=is_fresh,
                deadline=query.deadline,
            )
            if query.shared is None:
                self._keep_shared(query.resource, snapshot, query.now_ms, generation)
        resolved = resolve(snapshot, query.entity_id, query.resource, context.bucket_ttl_multiplier)
        keys = self._keys(query)
        cache.put(*keys, resolved, read_ms, generation, consistent=is_fresh)
        return resolved

    async def _with_cached_levels(self, query: ConfigQuery) -> tuple[ConfigSnapshot, int]:
        """Read a snapshot; return it and the time of the read of its older part.

        Shared levels that are not cached are read with the entity's own levels by one caller, and
        the others wait for them.
        """
        context, cache = self._context, self._context.cache
        resource, now_ms, deadline = query.resource, query.now_ms, query.deadline
        generation = cache.generation
        flight: Flight[tuple[SharedConfig, int]] | None = None
        levels = cache.get_shared(context.namespace_id, resource, now_ms)
        if levels is None:
            key = context.namespace_id, resource
            flight, waiter = context.shared_level_reads.join(key, generation, AWaiter)
            if waiter is not None and await landed(
                context.shared_level_reads, flight, waiter, deadline
            ):
                levels, flight = flight.result, None
        result: tuple[SharedConfig, int] | None = None
        try:
            snapshot = await context.engine.configs.snapshot(
                context.namespace_id,
                query.entity_id,
                resource,
                shared=None if levels is None else levels[0],
                deadline=deadline,
            )
            if levels is None:
                result = self._keep_shared(resource, snapshot, now_ms, generation), now_ms
        finally:
            if flight is not None:
                context.shared_level_reads.land(flight, result)
        return snapshot, now_ms if levels is None else min(now_ms, levels[1])

    def _keep_shared(
        self, resource: str, snapshot: ConfigSnapshot, now_ms: int, generation: int
    ) -> SharedConfig:
        levels = SharedConfig(snapshot.version, snapshot.resource, snapshot.system)
        self._context.cache.put_shared(
            self._context.namespace_id, resource, levels, now_ms, generation
        )
        return levels

    def _keys(self, query: ConfigQuery) -> tuple[tuple[str, str], tuple[str, int]]:
        """Return the two keys of the cache, for the entity and for the resource."""
        context = self._context
        entity_key = context.namespace_id, query.entity_id
        return entity_key, (query.resource, context.bucket_ttl_multiplier)


def _satisfies(resolved: Resolved, began_ms: int, fresh: Fresh | None) -> bool:
    return fresh is None or (resolved.version >= fresh.version and began_ms >= fresh.since_ms)


async def landed(
    flights: SingleFlight[T], flight: Flight[T], waiter: AWaiter, deadline: Deadline | None
) -> bool:
    """Wait for the call of another caller; False if this caller must make the call itself."""
    while True:
        left_s = math.inf if deadline is None else deadline.left()
        patience_s = min(flight.patience_s(waiter), left_s)
        try:
            await waiter.wait(min(patience_s, LONGEST_WAIT_S))
            return True
        except TimeoutError:
            if flight.has_landed:
                return True
            if flights.takes_over(flight):
                return False
            if deadline is not None and deadline.left() <= 0:
                raise RateLimiterUnavailable(
                    "the stored limits could not be read in time; try again"
                ) from None


def raise_for_waiter(error: Exception) -> NoReturn:
    """Raise a copy of another caller's error, since two tasks must not raise one object."""
    raise error.copy() if isinstance(error, ZAELimiterError) else error

"""Reading configuration into the cache; callers that need the same at once share a read."""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn, TypeVar

from zae_limiter._async.repository.context import Context
from zae_limiter.admission.resolution import Resolved, resolve
from zae_limiter.clock import Deadline
from zae_limiter.concurrency.single_flight import Flight, SingleFlight
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.exceptions import InfrastructureError, RateLimiterUnavailable, ZAELimiterError
from zae_limiter.models.config import ConfigSnapshot, SharedConfig

LONGEST_WAIT_S = 60.0  # of an engine without a deadline, before it looks again
RENEWAL_SHARE = 0.5  # of the time left; the rest is for the charge if the renewal fails

T = TypeVar("T")


class Fresh(NamedTuple):
    """What a read must satisfy after a bucket was found to have seen newer configuration.

    The read brings all levels at one moment, of at least the ``version`` that the bucket has seen,
    and began no earlier than the call that found the bucket.
    """

    version: int
    since_ms: int


class ConfigQuery(NamedTuple):
    """What one caller needs, as of which moment, and until when it waits."""

    entity_id: str
    resource: str
    now_ms: int
    deadline: Deadline | None = None
    fresh: Fresh | None = None
    shared: SharedConfig | None = None


class ConfigReader:
    """Reads what the cache does not hold, once for all callers of an entity and resource.

    One caller reads, the rest wait for it. If it fails, one of them reads once more; if that
    fails, too, all have failed. If it is cancelled or silent, one of them takes over.
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

        If the entry should only be renewed and that fails, it is used on until it expires.
        ``shared`` are levels that this call has just read for another entity.
        """
        query = ConfigQuery(entity_id, resource, now_ms, deadline, fresh, shared)
        cache = self._context.cache
        if cache.ttl_seconds <= 0 and fresh is None:  # each call is to see its own moment
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
        """Read for all that wait; ``shared`` levels of this caller alone are not used."""
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
        entity_id, resource, now_ms, deadline, fresh, shared = query
        generation, read_ms = cache.generation, now_ms
        if fresh is None and shared is None and cache.ttl_seconds > 0:
            snapshot, read_ms = await self._with_cached_levels(
                entity_id, resource, now_ms, deadline
            )
        else:
            snapshot = await context.engine.configs.snapshot(
                context.namespace_id,
                entity_id,
                resource,
                shared=shared,
                fresh=fresh is not None,
                deadline=deadline,
            )
            if shared is None:
                self._keep_shared(resource, snapshot, now_ms, generation)
        resolved = resolve(snapshot, entity_id, resource, context.bucket_ttl_multiplier)
        keys = self._keys(query)
        cache.put(*keys, resolved, read_ms, generation, consistent=fresh is not None)
        return resolved

    async def _with_cached_levels(
        self, entity_id: str, resource: str, now_ms: int, deadline: Deadline | None
    ) -> tuple[ConfigSnapshot, int]:
        """Read a snapshot; return it and when the older part of it was read.

        Shared levels that are not cached are read with the entity's own, by one caller; the rest
        wait for them.
        """
        context, cache = self._context, self._context.cache
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
                entity_id,
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
        """Return the keys of the cache: the entity's, and the resource's."""
        context = self._context
        entity_key = context.namespace_id, query.entity_id
        return entity_key, (query.resource, context.bucket_ttl_multiplier)


def _satisfies(resolved: Resolved, began_ms: int, fresh: Fresh | None) -> bool:
    return fresh is None or (resolved.version >= fresh.version and began_ms >= fresh.since_ms)


async def landed(
    flights: SingleFlight[T], flight: Flight[T], waiter: AWaiter, deadline: Deadline | None
) -> bool:
    """Wait for another caller's call; False if this caller is to make it in its place."""
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
                    "the stored limits were not read in time; try again"
                ) from None


def raise_for_waiter(error: Exception) -> NoReturn:
    """Raise what another caller's call has raised; two tasks must not raise one object."""
    raise error.copy() if isinstance(error, ZAELimiterError) else error

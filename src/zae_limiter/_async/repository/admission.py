"""What the limiter and its leases ask of a repository: limits, charges, settlements."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from zae_limiter._async.repository.context import Context
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import (
    ChargeOutcome,
    ChargeRequest,
    Settlement,
)
from zae_limiter.clock import Clock
from zae_limiter.concurrency.parallel import agather
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable, SharedConfig
from zae_limiter.models.limit import Limit
from zae_limiter.resolution import Resolved, Scope, override, resolve

MAX_OVERRIDES = 1000
UNCHARGED_LOG_S = 10.0


class Admission:
    """No decision is taken here: limits are resolved, the engine is asked."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.clock: Clock = context.clock
        self.stack_name = context.stack_name

    async def resolve(
        self, entity_id: str, resource: str, now_ms: int, *, fresh: bool = False
    ) -> Resolved:
        """What applies to an (entity, resource); ``fresh`` skips the cache."""
        known = None if fresh else self._known(entity_id, resource, now_ms)
        return known or await self._read(entity_id, resource, now_ms, fresh=fresh)

    def _known(self, entity_id: str, resource: str, now_ms: int) -> Resolved | None:
        context = self._context
        whose = context.namespace_id, entity_id
        return context.cache.get(whose, (resource, context.bucket_ttl_multiplier), now_ms)

    async def _read(
        self,
        entity_id: str,
        resource: str,
        now_ms: int,
        *,
        fresh: bool,
        shared: SharedConfig | None = None,
    ) -> Resolved:
        context = self._context
        generation = context.cache.generation
        snapshot = await context.engine.configs.snapshot(
            context.namespace_id, entity_id, resource, shared=shared, fresh=fresh
        )
        found = resolve(snapshot, entity_id, resource, context.bucket_ttl_multiplier)
        whose = context.namespace_id, entity_id
        what = resource, context.bucket_ttl_multiplier
        context.cache.put(whose, what, found, now_ms, generation)
        return found

    async def scope(
        self,
        entity_id: str,
        resource: str,
        limits: tuple[Limit, ...] | None,
        stored_first: bool,
        cascade: bool | None,
        *,
        fresh: bool = False,
    ) -> Scope:
        """Find the limits in force.

        ``limits`` are the call's own; with ``stored_first`` they only stand in where none are
        stored. ``fresh`` skips the cache.
        """
        now_ms = self.clock()
        resolved = None if fresh else self._known(entity_id, resource, now_ms)
        shared: SharedConfig | None = None
        if resolved is None:
            resolved = await self._read(entity_id, resource, now_ms, fresh=fresh)
            shared = resolved.shared  # as old as this call: good for the parent, too
        cascades = resolved.cascade if cascade is None else cascade
        in_force = resolved.in_force
        if limits is not None and not (stored_first and in_force is not None):
            in_force = self._override(limits, resolved)
        elif resolved.alone is not None and not cascades:
            return resolved.alone
        if in_force is None:
            raise ValidationError(
                "limits",
                None,
                f"no limits are stored for {entity_id!r} on {resource!r}; "
                "set_system_defaults() them, or pass limits=",
            )
        parent_id = resolved.parent_id
        if parent_id is None or not cascades:
            return Scope(resource, ((entity_id, in_force),))
        parent = None if fresh else self._known(parent_id, resource, now_ms)
        if parent is None:
            parent = await self._read(parent_id, resource, now_ms, fresh=fresh, shared=shared)
        if parent.in_force is None:
            return Scope(resource, ((entity_id, in_force),))
        return Scope(resource, ((entity_id, in_force), (parent_id, parent.in_force)))

    def _override(self, limits: tuple[Limit, ...], resolved: Resolved) -> InForce:
        """The call's limits, prepared once for each configuration that they meet."""
        overrides, multiplier = self._context.overrides, self._context.bucket_ttl_multiplier
        key = (limits, multiplier, resolved.in_force, resolved.version)
        known = overrides.get(key)
        if known is None:
            if len(overrides) >= MAX_OVERRIDES:
                overrides.clear()
            known = overrides[key] = override(limits, resolved, multiplier)
        return known

    def charge(
        self, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> Coroutine[Any, Any, ChargeOutcome]:
        context = self._context
        return context.engine.buckets.charge(context.namespace_id, request, receipt)

    async def settle(self, settlements: tuple[Settlement, ...], receipt: list[None]) -> None:
        context = self._context
        await context.engine.buckets.settle(
            context.namespace_id, settlements, context.clock, receipt
        )

    async def images(self, scope: Scope) -> list[BucketImage | None]:
        """Every bucket of the scope as it is stored."""
        context, store = self._context, self._context.engine.buckets
        return await agather(
            context.parallel,
            *(
                lambda entity_id=entity_id: store.get(
                    context.namespace_id, entity_id, scope.resource, context.clock
                )
                for entity_id, _ in scope.buckets
            ),
        )

    def outage_policy(self, call: OnUnavailable | None) -> OnUnavailable:
        """Call, then repository, then what the system defaults last said, then block."""
        context = self._context
        stored = context.cache.policy(context.namespace_id)
        return call or context.on_unavailable or stored or OnUnavailable.BLOCK

    def note_uncharged(self, error: Exception) -> None:
        """Say, but not for each call, that calls are let through uncharged."""
        uncharged = self._context.uncharged
        uncharged.add()
        if uncharged.is_due(UNCHARGED_LOG_S):
            import logging

            logging.getLogger("zae_limiter").warning(
                "the store does not answer, %d calls were admitted uncharged so far: %s",
                uncharged.value,
                error,
            )

    def count_lost_settlement(self) -> None:
        self._context.lost_settlements.add()

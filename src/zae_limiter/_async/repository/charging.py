"""The service of a repository for calls: it resolves their limits and counts outages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from zae_limiter._async.repository.config_reads import ConfigReader, Fresh
from zae_limiter._async.repository.context import Context
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import Charge
from zae_limiter.admission.resolution import Resolved, Scope, UnknownLimit, override
from zae_limiter.clock import Clock, Deadline
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import OnUnavailable, SharedConfig
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.locks import SignalSafeLock
from zae_limiter.runtime.parallel import agather

if TYPE_CHECKING:
    from zae_limiter._async.ask import AcquireCall
    from zae_limiter._async.holds import HoldKeeper
    from zae_limiter._async.slots import SlotKeeper
    from zae_limiter.waiting.lines import WaitingLines

UNCHARGED_LOG_S = 10.0  # the interval at which uncharged calls of an outage are logged


class ChargeService:
    """Resolves the limits of calls from the configuration cache, and reads them on a miss."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.breaker = context.breaker
        self.pending_ends = context.pending_ends
        self.parallel = context.parallel
        self._reader = ConfigReader(context)
        self.request_timeout = context.engine.request_timeout
        self.buckets = context.engine.buckets
        self.namespace_id = context.namespace_id
        self.clock: Clock = context.clock
        self.waiting_lines: WaitingLines | None = None  # None until an acquire waits for tokens
        self._slot_lines: WaitingLines | None = None
        self._slots: SlotKeeper | None = None
        self._holds: HoldKeeper | None = None
        self._lock = SignalSafeLock()

    @property
    def slots(self) -> SlotKeeper:
        """The keeper of slots, which renews them; it is made when the first slot is taken."""
        keeper = self._slots
        if keeper is None:
            from zae_limiter._async.slots import SlotKeeper

            with self._lock:
                keeper = self._slots = self._slots or SlotKeeper(
                    self.buckets, self.namespace_id, self.clock
                )
        return keeper

    @property
    def holds(self) -> HoldKeeper:
        """The keeper of holds, which renews them; it is made when a quota is first charged."""
        keeper = self._holds
        if keeper is None:
            from zae_limiter._async.holds import HoldKeeper

            with self._lock:
                keeper = self._holds = self._holds or HoldKeeper(
                    self.buckets, self.namespace_id, self.clock
                )
        return keeper

    @property
    def slot_lines(self) -> WaitingLines:
        """The lines of callers for slots, shared by all repositories of the store's namespace."""
        lines = self._slot_lines
        if lines is None:
            from zae_limiter.waiting.lines import shared_lines

            context = self._context
            # A namespace id is random. The name of the store tells a copy from its original.
            store = (context.engine.capabilities.engine, context.stack_name, self.namespace_id)
            lines = self._slot_lines = shared_lines(store)
        return lines

    def close(self) -> None:
        """Stop renewing slots and holds."""
        if self._slots is not None:
            self._slots.close()
        if self._holds is not None:
            self._holds.close()

    async def resolve(self, entity_id: str, resource: str, now_ms: int) -> Resolved:
        """Return the configuration of an entity on a resource."""
        cached = self._cached(entity_id, resource, now_ms)
        return cached or await self._reader.read(entity_id, resource, now_ms)

    async def scope(
        self,
        call: AcquireCall,
        now_ms: int,
        deadline: Deadline | None = None,
        fresh: Fresh | None = None,
    ) -> tuple[Scope, int]:
        """Return the buckets of a call with their limits in force, and the stamp of its charge.

        The stamp is ``now_ms``, or a later one if the configuration had to be read. The ``limits``
        of the call win over stored limits, unless the call prefers stored ones. A parent without
        stored limits is charged under the limits of the call. ``fresh`` skips the cache.
        """
        context, entity_id, resource = self._context, call.entity_id, call.resource
        multiplier = context.bucket_ttl_multiplier
        resolved = None
        if fresh is None:
            resolved = context.cache.get(
                (context.namespace_id, entity_id), (resource, multiplier), now_ms
            )
        shared: SharedConfig | None = None
        if resolved is None:
            resolved = await self._reader.read(entity_id, resource, now_ms, deadline, fresh=fresh)
            shared = resolved.shared  # just read, so they are used for the parent as well
            now_ms = self.clock()
        cascades = resolved.cascade if call.cascade is None else call.cascade
        in_force = resolved.in_force
        if call.limits is not None and not (call.prefer_stored and in_force is not None):
            in_force = self._override(call.limits, resolved)
        elif resolved.alone is not None and not cascades:
            return resolved.alone, now_ms
        if in_force is None:
            raise ValidationError(
                "limits",
                None,
                f"no limits are stored for {entity_id!r} on {resource!r}; "
                "store some by set_system_defaults(), or pass limits=",
            )
        parent_id, switches = resolved.parent_id, resolved.switches
        own_switches = None if switches is None else (switches,)
        if parent_id is None or not cascades:
            return Scope(resource, ((entity_id, in_force),), own_switches), now_ms
        parent = None
        if fresh is None:
            parent = context.cache.get(
                (context.namespace_id, parent_id), (resource, multiplier), now_ms
            )
        if parent is None:
            parent = await self._reader.read(
                parent_id, resource, now_ms, deadline, fresh=fresh, shared=shared
            )
            now_ms = self.clock()
        parents_limits = parent.in_force
        if parents_limits is None and call.limits is not None:
            parents_limits = self._override(call.limits, parent)
        if parents_limits is None:
            return Scope(resource, ((entity_id, in_force),), own_switches), now_ms
        has_switches = switches is not None or parent.switches is not None
        both_switches = (switches, parent.switches) if has_switches else None
        buckets = ((entity_id, in_force), (parent_id, parents_limits))
        return Scope(resource, buckets, both_switches), now_ms

    async def images(self, charges: Sequence[Charge]) -> list[BucketImage | None]:
        """Read the bucket of every charge."""
        buckets = [(charge.entity_id, charge.resource) for charge in charges]
        context, get = self._context, self._context.engine.buckets.get
        return await agather(
            context.parallel,
            *[partial(get, context.namespace_id, *bucket, context.clock) for bucket in buckets],
        )

    def outage_policy(self, of_call: OnUnavailable | None) -> OnUnavailable:
        """Return the outage policy: that of the call, of the repository, or of the system."""
        context = self._context
        stored = context.cache.policy(context.namespace_id)
        return of_call or context.on_unavailable or stored or OnUnavailable.BLOCK

    def count_uncharged(self, error: Exception) -> None:
        """Count a call that was let through in an outage; log it at most every ten seconds."""
        uncharged = self._context.uncharged
        uncharged.add()
        if uncharged.is_due(UNCHARGED_LOG_S):
            # Imported here, so that `import zae_limiter` does not import logging.
            from zae_limiter.quiet_logging import quiet_logger

            quiet_logger(__name__).warning(
                "the store does not answer; %d calls were admitted uncharged so far: %s",
                uncharged.value,
                error,
            )

    async def explained(self, error: UnknownLimit) -> ValidationError:
        """Return the error for a call that names an unknown limit: who has removed it, and when."""
        removed = self._context.removed_limits
        if not removed:
            from zae_limiter._async.removed_limits import RemovedLimits

            removed.append(RemovedLimits())
        return await removed[0].explained(self._context, error)

    def count_lost_settlement(self) -> None:
        self._context.lost_settlements.add()

    def _cached(self, entity_id: str, resource: str, now_ms: int) -> Resolved | None:
        context = self._context
        entity_key = context.namespace_id, entity_id
        return context.cache.get(entity_key, (resource, context.bucket_ttl_multiplier), now_ms)

    def _override(self, limits: tuple[Limit, ...], resolved: Resolved) -> InForce:
        """Return the prepared limits of a call, which are cached for each configuration."""
        overrides, multiplier = self._context.overrides, self._context.bucket_ttl_multiplier
        key = (limits, multiplier, resolved.in_force, resolved.version)
        in_force = overrides.get(key)
        if in_force is None:
            in_force = override(limits, resolved, multiplier)
            overrides.put(key, in_force)
        return in_force

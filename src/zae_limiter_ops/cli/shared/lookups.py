"""Entities and buckets with the limits in force, read from the store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING

from zae_limiter.admission.in_force import stored_units
from zae_limiter.admission.slots import RETRY_S
from zae_limiter.bucket import calculate_retry_after
from zae_limiter.models.timestamps import MILLI, iso_from_ms
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.cli.shared.in_force import LimitsInForce
from zae_limiter_ops.cli.shared.modes import ENFORCED, ModeView

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit

# Suggestions for a mistyped id must be cheap in stores with very many entities. So they come from
# one page of ids that share the first characters, which are rarely mistyped, and from a few
# resources.
SUGGESTION_PAGE = 200
TRUSTED_PREFIX = 3
MAX_SEARCHED_RESOURCES = 5


@dataclass(frozen=True, slots=True)
class ShownLimits:
    """The limits in force for an entity on a resource, and their configuration level."""

    entity_id: str
    resource: str  # ``_default_`` stands for all resources that are not listed
    source: ConfigSource | None
    limits: tuple[Limit, ...]
    mode: ModeView | None = None  # None for all resources that are not listed


@dataclass(frozen=True, slots=True)
class ParentView:
    """The parent of an entity: whether it was created, and the kind of its limits in force."""

    exists: bool
    limits: str  # own, defaults or none

    @classmethod
    def of(cls, parent: Entity | None, in_force: Iterable[ShownLimits]) -> ParentView:
        sources = [shown.source for shown in in_force if shown.source]
        own = any(source.is_entity_level for source in sources)
        return cls(parent is not None, "own" if own else "defaults" if sources else "none")


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity and the limits in force for it. ``entity`` is None if it was not created."""

    entity_id: str
    entity: Entity | None
    in_force: tuple[ShownLimits, ...]
    parent: ParentView | None = None

    @property
    def is_known(self) -> bool:
        """Whether the entity was created, or has limits or a mode of its own."""
        own = [shown for shown in self.in_force if shown.entity_id == self.entity_id]
        sources = [shown.source for shown in own]
        sources += [shown.mode.source for shown in own if shown.mode is not None]
        return self.entity is not None or any(
            source and source.is_entity_level for source in sources
        )


def view_entity(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> EntityView:
    """Return the entity with the limits in force on every resource that has limits or a bucket.

    If the entity cascades, the limits of its parent follow.
    """
    entity = repository.get_entity(entity_id)
    in_force = _all_in_force(repository, charged_entities(entity_id, entity), resource)
    parent_id = entity.parent_id if entity else None
    if parent_id is None:
        return EntityView(entity_id, entity, tuple(in_force))
    parents = [shown for shown in in_force if shown.entity_id == parent_id]
    parent = ParentView.of(
        repository.get_entity(parent_id),
        parents or _all_in_force(repository, [parent_id], resource),
    )
    return EntityView(entity_id, entity, tuple(in_force), parent)


def _all_in_force(
    repository: SyncRepository, entity_ids: list[str], resource: str | None
) -> list[ShownLimits]:
    """Return the limits in force on one resource, or on all with limits or a bucket."""
    resources = [resource] if resource else _resources(repository, entity_ids)
    in_force = []
    for entity_id in entity_ids:
        in_force += [_limits_in_force(repository, entity_id, name) for name in resources]
        if resource is None:
            in_force.append(_limits_on_other_resources(repository, entity_id))
    return in_force


def charged_entities(entity_id: str, entity: Entity | None) -> list[str]:
    """Return the entities that an acquire charges: the entity, and its parent if it cascades."""
    if entity is not None and entity.cascade and entity.parent_id is not None:
        return [entity_id, entity.parent_id]
    return [entity_id]


def _resources(repository: SyncRepository, entity_ids: list[str]) -> list[str]:
    used = {state.resource for id_ in entity_ids for state in repository.get_buckets(id_)}
    with_own_limits = {
        name
        for name in repository.list_resources_with_entity_configs()
        if name != DEFAULT_RESOURCE and any(_has_own(repository, id_, name) for id_ in entity_ids)
    }
    return sorted(used | with_own_limits | set(repository.list_resources_with_defaults()))


def _has_own(repository: SyncRepository, entity_id: str, resource: str) -> bool:
    """Return whether an entity has limits or a mode of its own on a resource."""
    if repository.get_limits(entity_id, resource):
        return True
    return repository.get_mode(resource, entity_id) is not None


def _limits_in_force(repository: SyncRepository, entity_id: str, resource: str) -> ShownLimits:
    limits, _, source = repository.resolve_limits(entity_id, resource)
    mode = ModeView.of(repository, entity_id, resource)
    return ShownLimits(entity_id, resource, source, tuple(limits or ()), mode)


def _limits_on_other_resources(repository: SyncRepository, entity_id: str) -> ShownLimits:
    """Return the limits in force on a resource without defaults and without entity limits."""
    from zae_limiter.models.config import ConfigSource

    own, switch = repository.get_limits(entity_id), repository.get_mode(entity_id=entity_id)
    mode = None
    if switch is not None and not switch.is_over(time_ns() // 10**6):
        mode = ModeView(switch.mode, switch.until, ConfigSource.ENTITY_DEFAULT)
    if own:
        source = ConfigSource.ENTITY_DEFAULT
        return ShownLimits(entity_id, DEFAULT_RESOURCE, source, tuple(own), mode)
    limits, _ = repository.get_system_defaults()
    found = ConfigSource.SYSTEM if limits else None
    return ShownLimits(entity_id, DEFAULT_RESOURCE, found, tuple(limits), mode)


@dataclass(frozen=True, slots=True)
class BucketView:
    """One limit of a bucket, with its level at the time of the read."""

    state: BucketState
    from_call: bool  # calls have passed the limit, in addition to the stored one
    limits_changed: bool  # the limits in force have changed since the last acquire
    last_used_hour: str | None  # start of the last hour with consumption
    mode: ModeView = ENFORCED

    @property
    def debt_milli(self) -> int:
        return max(0, -self.state.tokens_milli)

    @property
    def retry_after_seconds(self) -> float:
        """The time until one token can be taken, provided that nothing else is charged.

        For a budget it is a billionth of the currency unit. For slots, it is the time after which a
        caller should ask again. A soft limit never makes a call wait. The time is never shorter
        than the rest of a pause or of mode deny.
        """
        if self.state.limit.soft or self.mode.never_rejects:
            return self.stopped_seconds
        least = MILLI if self.state.limit.currency is None else 1
        seconds = min(self._until(least), RETRY_S) if self._has_slots else self._until(least)
        return max(seconds, self.stopped_seconds)

    def fits_after_seconds(self, amount: int | Decimal) -> float:
        """Return the time until an amount can be taken; infinite if it never can.

        The time holds provided that nothing else is charged.
        """
        if self.state.limit.soft or self.mode.never_rejects:
            return self.stopped_seconds
        units = stored_units(amount, self.state.limit.currency is not None)
        if units > self.state.capacity_milli and units > self.state.tokens_milli:
            return math.inf
        seconds = self._until(units)
        return max(min(seconds, RETRY_S) if self._has_slots else seconds, self.stopped_seconds)

    @property
    def stopped_seconds(self) -> float:
        """The time for which a pause or mode deny stops every call; 0 if none does."""
        return max(self.paused_seconds, self.denied_seconds)

    @property
    def denied_seconds(self) -> float:
        """The remaining time of mode deny, infinite without an end; 0 in any other mode."""
        return self.mode.denied_seconds(self.state.last_refill_ms)

    @property
    def paused_seconds(self) -> float:
        """The remaining time of the pause; 0 if the bucket is not paused."""
        until_ms = self.state.paused_until_ms
        return 0.0 if until_ms is None else max(0, until_ms - self.state.last_refill_ms) / 1000

    @property
    def paused_until(self) -> str | None:
        """The end of the pause as ISO text."""
        until_ms = self.state.paused_until_ms
        return None if until_ms is None else iso_from_ms(until_ms)

    @property
    def used_share(self) -> float:
        """The used share of the capacity: 1 for an empty bucket, more in debt."""
        return 1 - self.state.tokens_milli / self.state.capacity_milli

    @property
    def full_after_seconds(self) -> float:
        """The time until the bucket is full; for slots, until all held slots expire."""
        return self._until(self.state.capacity_milli)

    @property
    def _has_slots(self) -> bool:
        return self.state.refill_amount_milli == 0

    def _until(self, level_milli: int) -> float:
        state = self.state
        missing = level_milli - state.tokens_milli
        if self._has_slots:
            return state.refill_period_ms / 1000 if missing > 0 else 0.0
        if state.limit.is_quota:  # full when the next window begins
            if missing <= 0 or state.window_end is None:
                return 0.0
            return max(0.0, state.window_end.timestamp() - state.last_refill_ms / 1000)
        return calculate_retry_after(missing, state.refill_amount_milli, state.refill_period_ms)


def view_buckets(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> list[BucketView]:
    """Return the limits of all buckets of an entity, or of its bucket on ``resource``."""
    states = repository.get_buckets(entity_id, resource)
    names = dict.fromkeys(state.resource for state in states)
    last = {name: last_used_hour(repository, entity_id, name) for name in names}
    shown = {name: _limits_in_force(repository, entity_id, name) for name in names}
    stored = {(state.resource, state.limit_name, state.limit) for state in states}
    views, seen = [], set[tuple[str, str]]()
    for state in LimitsInForce().applied(repository, states):
        key = (state.resource, state.limit_name)
        # The stored limit comes first; calls have passed a second limit of that name.
        from_call = key in seen
        is_stored = (*key, state.limit) in stored
        in_force = state.limit in shown[state.resource].limits
        changed = not from_call and not (is_stored and in_force)
        mode = shown[state.resource].mode or ENFORCED
        views.append(BucketView(state, from_call, changed, last[state.resource], mode))
        seen.add(key)
    return views


def last_used_hour(repository: SyncRepository, entity_id: str, resource: str) -> str | None:
    """Return the start of the last hour with consumption; None if the hour is unknown."""
    summary = repository.get_usage_summary(entity_id, resource, "hourly")
    return summary.max_window_start or repository.get_last_use(entity_id, resource)


def is_known_entity(repository: SyncRepository, entity_id: str) -> bool:
    """Return whether an entity was created or used, or has limits or a mode of its own.

    The cheapest reads come first.
    """
    return (
        bool(repository.get_buckets(entity_id))
        or repository.get_entity(entity_id) is not None
        or bool(repository.get_limits(entity_id))
        or repository.get_mode(entity_id=entity_id) is not None
        or any(
            _has_own(repository, entity_id, resource)
            for resource in repository.list_resources_with_entity_configs()
            if resource != DEFAULT_RESOURCE
        )
        or bool(repository.get_usage_summary(entity_id).snapshot_count)
    )


def is_known_resource(repository: SyncRepository, resource: str) -> bool:
    """Return whether a resource has defaults, limits of entities, or buckets, or was used."""
    return (
        resource in repository.list_resources_with_defaults()
        or resource in repository.list_resources_with_entity_configs()
        or bool(repository.list_buckets(1, resource=resource)[0])
        or resource in repository.list_resources()
    )


def similar_entities(repository: SyncRepository, entity_id: str) -> list[str]:
    """Return some ids that start like this one, and some that are in use, from cheap reads."""
    states, _ = repository.list_buckets(SUGGESTION_PAGE)
    in_use = {state.entity_id for state in states}
    start = entity_id[:TRUSTED_PREFIX]
    return sorted(in_use.union(entity_ids_after(repository, start, SUGGESTION_PAGE)))


def similar_resources(repository: SyncRepository) -> list[str]:
    """Return some names of resources, from a few cheap reads."""
    states, _ = repository.list_buckets(SUGGESTION_PAGE)
    return sorted(
        {
            *repository.list_resources_with_defaults(),
            *repository.list_resources_with_entity_configs(),
            *(state.resource for state in states),
        }
        - {DEFAULT_RESOURCE}
    )


def entity_ids_after(repository: SyncRepository, start: str, limit: int) -> list[str]:
    """Return ids after ``start`` of entities that were created or have limits of their own.

    The result is incomplete for a store that lists entities unordered: only its first page is
    read.
    """
    pages = (repository.list_entities(limit, cursor) for cursor in {"", start})
    entity_ids = {entity.id for entities, _ in pages for entity in entities}
    for resource in repository.list_resources_with_entity_configs()[:MAX_SEARCHED_RESOURCES]:
        ids, _ = repository.list_entities_with_custom_limits(resource, limit, start)
        entity_ids.update(ids)
    return sorted(entity_ids)

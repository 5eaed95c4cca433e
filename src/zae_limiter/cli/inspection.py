"""What commands look up in more than one place, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zae_limiter.bucket import calculate_retry_after
from zae_limiter.models.limit import MILLI
from zae_limiter.naming import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit

NEARBY_IDS = 200
COMMON_START = 3
MANY_RESOURCES = 5


@dataclass(frozen=True, slots=True)
class InForce:
    """The limits that apply to an entity on a resource, and the level they come from."""

    entity_id: str
    resource: str  # ``_default_``: any that is not listed
    source: ConfigSource | None
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity with everything that applies to it. ``entity`` is None if it was not created."""

    entity_id: str
    entity: Entity | None
    in_force: tuple[InForce, ...]

    @property
    def is_known(self) -> bool:
        """Created, or with limits of its own."""
        own = (each.source for each in self.in_force if each.entity_id == self.entity_id)
        return self.entity is not None or any(each and each.is_entity_level for each in own)


def view_entity(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> EntityView:
    """The entity, and the limits in force on every resource that has limits or a bucket."""
    entity = repository.get_entity(entity_id)
    whose = [entity_id]
    if entity is not None and entity.cascade and entity.parent_id is not None:
        whose.append(entity.parent_id)
    resources = [resource] if resource else _resources(repository, whose)
    found = [_in_force(repository, each, name) for each in whose for name in resources]
    if resource is None:
        found += [_elsewhere(repository, each) for each in whose]
    found.sort(key=lambda each: (whose.index(each.entity_id), each.resource == DEFAULT_RESOURCE))
    return EntityView(entity_id, entity, tuple(found))


def _resources(repository: SyncRepository, whose: list[str]) -> list[str]:
    used = {state.resource for each in whose for state in repository.get_buckets(each)}
    own = {
        name
        for name in repository.list_resources_with_entity_configs()
        if name != DEFAULT_RESOURCE and any(repository.get_limits(each, name) for each in whose)
    }
    return sorted(used | own | set(repository.list_resources_with_defaults()))


def _in_force(repository: SyncRepository, entity_id: str, resource: str) -> InForce:
    limits, _, source = repository.resolve_limits(entity_id, resource)
    return InForce(entity_id, resource, source, tuple(limits or ()))


def _elsewhere(repository: SyncRepository, entity_id: str) -> InForce:
    """What applies on a resource that nobody has mentioned."""
    from zae_limiter.models.config import ConfigSource

    own = repository.get_limits(entity_id)
    if own:
        return InForce(entity_id, DEFAULT_RESOURCE, ConfigSource.ENTITY_DEFAULT, tuple(own))
    limits, _ = repository.get_system_defaults()
    source = ConfigSource.SYSTEM if limits else None
    return InForce(entity_id, DEFAULT_RESOURCE, source, tuple(limits))


@dataclass(frozen=True, slots=True)
class BucketView:
    """One limit's bucket at the moment of reading."""

    state: BucketState
    from_call: bool  # the limit came with calls and stands beside the configured one
    limits_changed: bool  # since the last acquire: the next one goes by others
    last_used_hour: str | None  # start of the last hour with consumption

    @property
    def debt_milli(self) -> int:
        return max(0, -self.state.tokens_milli)

    @property
    def retry_after_seconds(self) -> float:
        """Until one token can be taken, if nobody else comes."""
        return self._until(MILLI)

    @property
    def full_after_seconds(self) -> float:
        return self._until(self.state.capacity_milli)

    def _until(self, level_milli: int) -> float:
        state = self.state
        missing = level_milli - state.tokens_milli
        return calculate_retry_after(missing, state.refill_amount_milli, state.refill_period_ms)


def view_buckets(
    repository: SyncRepository, entity_id: str, resource: str | None = None
) -> list[BucketView]:
    """All buckets of an entity, or those on one resource."""
    states = repository.get_buckets(entity_id, resource)
    names = dict.fromkeys(state.resource for state in states)
    last = {name: last_used_hour(repository, entity_id, name) for name in names}
    in_force = {name: set(_in_force(repository, entity_id, name).limits) for name in names}
    found, seen = [], set[tuple[str, str]]()
    for state in states:
        key = (state.resource, state.limit_name)
        from_call = key in seen
        changed = not from_call and state.limit not in in_force[state.resource]
        found.append(BucketView(state, from_call, changed, last[state.resource]))
        seen.add(key)
    return found


def last_used_hour(repository: SyncRepository, entity_id: str, resource: str) -> str | None:
    """Start of the last hour in which something was consumed; None if that is not known."""
    summary = repository.get_usage_summary(entity_id, resource, "hourly")
    return summary.max_window_start or repository.get_last_use(entity_id, resource)


def similar_entities(repository: SyncRepository, entity_id: str) -> list[str]:
    """Ids that begin like this one, as far as a few cheap reads find them."""
    return entities_near(repository, entity_id[:COMMON_START], NEARBY_IDS)


def entities_near(repository: SyncRepository, start: str, limit: int) -> list[str]:
    """Ids that sort after ``start``, of entities that were created or have limits of their own.

    Not all of them: where a store keeps entities in an order of its own, only the first are
    looked at.
    """
    pages = (repository.list_entities(limit, cursor) for cursor in {"", start})
    near = {entity.id for entities, _ in pages for entity in entities}
    for resource in repository.list_resources_with_entity_configs()[:MANY_RESOURCES]:
        ids, _ = repository.list_entities_with_custom_limits(resource, limit, start)
        near.update(ids)
    return sorted(near)

"""Entities with their limits in force, and their forms as columns and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.views.columns import Column, json_of
from zae_limiter_ops.views.formatting import NOT_REGISTERED, format_time, limits_json
from zae_limiter_ops.views.modes import ENFORCED, ModeView

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit


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
        in_force += [limits_in_force(repository, entity_id, name) for name in resources]
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
        if name != DEFAULT_RESOURCE and any(has_own(repository, id_, name) for id_ in entity_ids)
    }
    return sorted(used | with_own_limits | set(repository.list_resources_with_defaults()))


def has_own(repository: SyncRepository, entity_id: str, resource: str) -> bool:
    """Return whether an entity has limits or a mode of its own on a resource."""
    if repository.get_limits(entity_id, resource):
        return True
    return repository.get_mode(resource, entity_id) is not None


def limits_in_force(repository: SyncRepository, entity_id: str, resource: str) -> ShownLimits:
    limits, _, source = repository.resolve_limits(entity_id, resource)
    mode = ModeView.of(repository, entity_id, resource)
    return ShownLimits(entity_id, resource, source, tuple(limits or ()), mode)


def _limits_on_other_resources(repository: SyncRepository, entity_id: str) -> ShownLimits:
    """Return the limits in force on a resource without defaults and without entity limits."""
    from zae_limiter.models.config import ConfigSource

    own, switch = repository.get_limits(entity_id), repository.get_mode(entity_id=entity_id)
    now_ms = repository.charging.clock()
    mode = ModeView.of_switch(switch, ConfigSource.ENTITY_DEFAULT, now_ms)
    if own:
        source = ConfigSource.ENTITY_DEFAULT
        return ShownLimits(entity_id, DEFAULT_RESOURCE, source, tuple(own), mode)
    limits, _ = repository.get_system_defaults()
    found = ConfigSource.SYSTEM if limits else None
    return ShownLimits(entity_id, DEFAULT_RESOURCE, found, tuple(limits), mode)


# --- forms -----------------------------------------------------------------------------------


def _created(time: str) -> str:
    """Return the time; an id that was used but never created has an empty one."""
    return format_time(time) if time else NOT_REGISTERED


def entity_columns(*, with_parent: bool = True) -> list[Column[Entity]]:
    """Return the columns; a table of the children of one parent does without the parent."""
    return [
        Column(title="entity", key="entity_id", value=lambda entity: entity.id),
        Column(title="name", key="name", value=lambda entity: entity.name),
        Column(
            title="parent" if with_parent else None,
            key="parent_id",
            value=lambda entity: entity.parent_id,
        ),
        Column(title="cascade", key="cascade", value=lambda entity: entity.cascade),
        Column(key="metadata", value=lambda entity: dict(entity.metadata)),
        Column(
            title="created=",
            key="created_at",
            value=lambda entity: entity.created_at,
            format=_created,
        ),
    ]


def entity_json(entity: Entity) -> dict[str, Any]:
    """Return the JSON; ``created_at`` is empty for an id that was used but never created."""
    return json_of(entity_columns(), entity)


def view_json(view: EntityView) -> dict[str, Any]:
    """Return the JSON. New versions may add fields; they never remove or redefine a field."""
    from zae_limiter.models.entity import Entity

    return {
        **entity_json(view.entity or Entity(view.entity_id)),
        "exists": view.entity is not None,
        "parent_exists": view.parent.exists if view.parent else None,
        "parent_limits": view.parent.limits if view.parent else None,
        "in_force": [
            {
                "entity_id": shown.entity_id,
                "resource": None if shown.resource == DEFAULT_RESOURCE else shown.resource,
                "source": shown.source,
                "limits": limits_json(shown.limits),
                **(shown.mode or ENFORCED).to_dict(),
            }
            for shown in view.in_force
        ],
    }

"""Entities and their tree."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.admission.configuration import (
    PlaceChange,
    Revised,
    create_entity,
    entity_deleted,
    revise_place,
)
from zae_limiter.embedded import buckets
from zae_limiter.embedded.history import PAGE, record
from zae_limiter.embedded.tables import Listing, Tables
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.entity import Entity


def create(tables: Tables, namespace_id: str, entity: Entity, audited: AuditedChange) -> None:
    """Add an entity that does not exist yet."""
    event = create_entity(entity, exists=tables.get_entity(namespace_id, entity.id) is not None)
    tables.put_entity(namespace_id, entity)
    record(tables, namespace_id, audited, *event)


def get(tables: Tables, namespace_id: str, entity_id: str) -> Entity | None:
    return tables.get_entity(namespace_id, entity_id)


def get_many(
    tables: Tables, namespace_id: str, entity_ids: Sequence[str]
) -> Listing[dict[str, Entity]]:
    """Read the registered entities, page by page."""
    entities = {}
    for start in range(0, len(entity_ids), PAGE):
        for entity_id in entity_ids[start : start + PAGE]:
            entity = tables.get_entity(namespace_id, entity_id)
            if entity is not None:
                entities[entity_id] = entity
        yield
    return entities


def page(
    tables: Tables, namespace_id: str, parent_id: str | None, after: str, limit: int | None
) -> Listing[tuple[list[Entity], str | None]]:
    """List the children of a parent, or all entities, also ids that only have buckets.

    The second value is the cursor of the next page; None at the end.
    """
    listed: list[Entity] = []
    most = None if limit is None else limit + 1
    while most is None or len(listed) < most:
        wanted = PAGE if most is None else min(PAGE, most - len(listed))
        if parent_id is not None:
            entities = tables.entities(namespace_id, parent_id, after, wanted)
        else:
            entities = tables.entities_in_use(namespace_id, after, wanted)
        listed += entities
        if len(entities) < wanted:
            break
        after = entities[-1].id
        yield
    if limit is None or len(listed) <= limit:
        return listed, None
    return listed[:limit], listed[limit - 1].id


def set_parent(
    tables: Tables, namespace_id: str, audited: AuditedChange, parent_id: str | None, cascade: bool
) -> Entity | None:
    """Give an entity another parent, or none; buckets stay. None if there is no such entity."""
    before = tables.get_entity(namespace_id, audited.subject)
    if before is None:
        return None
    change = PlaceChange(before.id, parent_id, cascade)
    return _write(tables, namespace_id, revise_place(change, before, audited.now_ms), audited).after


def place(
    tables: Tables, namespace_id: str, change: PlaceChange, audited: AuditedChange
) -> Revised[Entity]:
    """Register an entity under a parent, change its parent, or end its registration."""
    before = tables.get_entity(namespace_id, change.entity_id)
    return _write(tables, namespace_id, revise_place(change, before, audited.now_ms), audited)


def _write(
    tables: Tables, namespace_id: str, revised: Revised[Entity], audited: AuditedChange
) -> Revised[Entity]:
    if revised.event is None:
        return revised
    if revised.after is None:
        tables.delete_entity(namespace_id, audited.subject)
    else:
        tables.put_entity(namespace_id, revised.after)
    record(tables, namespace_id, audited, *revised.event)
    return revised


def delete(tables: Tables, namespace_id: str, audited: AuditedChange) -> bool:
    """Delete an entity, its limits and its buckets; usage and audit events stay.

    Return False if there is nothing to delete.
    """
    entity_id = audited.subject
    exists = tables.get_entity(namespace_id, entity_id) is not None
    resources = tables.config_resources(namespace_id, entity_id)
    rows = tables.entity_buckets(namespace_id, entity_id)
    if not (exists or resources or rows):
        return False
    tables.delete_entity(namespace_id, entity_id)
    for resource in resources:
        tables.delete_config(namespace_id, entity_id, resource)
    for row in rows:
        buckets.drop(tables, row)
    if resources:
        tables.bump_config_version(namespace_id)
    event = entity_deleted(resources, [row.resource for row in rows])
    record(tables, namespace_id, audited, *event)
    return True

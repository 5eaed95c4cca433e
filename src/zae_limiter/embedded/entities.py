"""Entities and their tree."""

from __future__ import annotations

from zae_limiter.embedded import buckets
from zae_limiter.embedded.history import record
from zae_limiter.embedded.tables import Tables
from zae_limiter.exceptions import EntityExistsError
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.entity import Entity


def create(tables: Tables, namespace_id: str, entity: Entity, change: AuditedChange) -> None:
    """Add an entity that does not exist yet."""
    if tables.get_entity(namespace_id, entity.id) is not None:
        raise EntityExistsError(entity.id)
    tables.put_entity(namespace_id, entity)
    details = {
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": entity.metadata,
    }
    record(tables, namespace_id, change, AuditAction.ENTITY_CREATED, details)


def get(tables: Tables, namespace_id: str, entity_id: str) -> Entity | None:
    return tables.get_entity(namespace_id, entity_id)


def page(
    tables: Tables, namespace_id: str, parent_id: str | None, after: str, limit: int | None
) -> list[Entity]:
    return tables.entities(namespace_id, parent_id, after, limit)


def delete(tables: Tables, namespace_id: str, change: AuditedChange) -> bool:
    """Delete an entity, its limits and its buckets; usage and audit events stay.

    Return False if there is nothing to delete.
    """
    entity_id = change.subject
    exists = tables.get_entity(namespace_id, entity_id) is not None
    resources = tables.config_resources(namespace_id, entity_id)
    rows = tables.buckets(namespace_id, entity_id, None)
    if not (exists or resources or rows):
        return False
    tables.delete_entity(namespace_id, entity_id)
    for resource in resources:
        tables.delete_config(namespace_id, entity_id, resource)
    for row in rows:
        buckets.drop(tables, row)
    if resources:
        tables.bump_config_version(namespace_id)
    details = {"limits_of": resources, "buckets_of": [row.resource for row in rows]}
    record(tables, namespace_id, change, AuditAction.ENTITY_DELETED, details)
    return True

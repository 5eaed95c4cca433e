"""Stored limits of every level. Each change counts the namespace's configuration version up."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.embedded.audit import Change, record
from zae_limiter.embedded.tables import NO_ENTITY, NO_RESOURCE, Tables
from zae_limiter.models.audit import SYSTEM_SUBJECT, AuditAction, resource_subject
from zae_limiter.models.config import ConfigSnapshot, LevelConfig
from zae_limiter.naming import DEFAULT_RESOURCE


class Level(NamedTuple):
    """Key of a level: an entity's resource, an entity's default, a resource, or the system."""

    entity_id: str = NO_ENTITY
    resource: str = NO_RESOURCE

    @property
    def subject(self) -> str:
        """Whom the audit log names."""
        if self.entity_id:
            return self.entity_id
        return resource_subject(self.resource) if self.resource else SYSTEM_SUBJECT


def snapshot(tables: Tables, namespace_id: str, entity_id: str, resource: str) -> ConfigSnapshot:
    """Everything that decides an (entity, resource), at one moment."""
    return ConfigSnapshot(
        version=tables.config_version(namespace_id),
        entity=tables.get_entity(namespace_id, entity_id),
        entity_resource=tables.get_config(namespace_id, entity_id, resource),
        entity_default=tables.get_config(namespace_id, entity_id, DEFAULT_RESOURCE),
        resource=tables.get_config(namespace_id, NO_ENTITY, resource),
        system=tables.get_config(namespace_id, NO_ENTITY, NO_RESOURCE),
    )


def get(tables: Tables, namespace_id: str, level: Level) -> LevelConfig | None:
    return tables.get_config(namespace_id, *level)


def put(
    tables: Tables, namespace_id: str, level: Level, config: LevelConfig, change: Change
) -> None:
    """Replace what the level holds."""
    before = tables.get_config(namespace_id, *level)
    tables.put_config(namespace_id, *level, config)
    tables.bump_config_version(namespace_id)
    details = {**config.to_dict(), "previous": before.to_dict() if before else None}
    record(tables, namespace_id, change, AuditAction.LIMITS_SET, details)


def delete(tables: Tables, namespace_id: str, level: Level, change: Change) -> bool:
    """Remove what the level holds; False if it held nothing."""
    before = tables.get_config(namespace_id, *level)
    if before is None:
        return False
    tables.delete_config(namespace_id, *level)
    tables.bump_config_version(namespace_id)
    details = {"previous": before.to_dict()}
    record(tables, namespace_id, change, AuditAction.LIMITS_DELETED, details)
    return True


def resources_with_defaults(tables: Tables, namespace_id: str) -> list[str]:
    return [each for each in tables.config_resources(namespace_id, NO_ENTITY) if each]


def resources_with_entity_configs(tables: Tables, namespace_id: str) -> list[str]:
    return tables.entity_config_resources(namespace_id)


def configured_entities(
    tables: Tables, namespace_id: str, resource: str, after: str, limit: int | None
) -> list[str]:
    return tables.configured_entities(namespace_id, resource, after, limit)

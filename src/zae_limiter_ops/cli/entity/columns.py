"""The columns of entities, for tables and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter_ops.cli.shared.formatting import NOT_REGISTERED, format_time
from zae_limiter_ops.reports.columns import Column, json_of

if TYPE_CHECKING:
    from zae_limiter.models.entity import Entity


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

"""Entities, and their limits in force, printed for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.cli.shared.formatting import (
    LEVELS,
    NOT_REGISTERED,
    format_time,
    limits_json,
)
from zae_limiter_ops.cli.shared.limit_tables import LimitRow, limit_rows, print_limit_rows
from zae_limiter_ops.cli.shared.modes import ENFORCED
from zae_limiter_ops.cli.shared.tables import print_fields, print_line
from zae_limiter_ops.reports.columns import Column, json_of

if TYPE_CHECKING:
    from zae_limiter.models.entity import Entity
    from zae_limiter_ops.cli.shared.lookups import EntityView, ParentView, ShownLimits


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


# --- an entity with its limits in force -----------------------------------------------------

PARENT_LIMITS = {
    "own": "has limits of its own",
    "defaults": "limited by the defaults",
    "none": "no limits are stored for it",
}


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


def print_view(view: EntityView) -> None:
    """Print the entity, then a table of the limits in force."""
    if view.entity is None:
        print_line(f"entity   {view.entity_id} (never created, so it has no parent)")
    else:
        _print_entity(view.entity, view.parent)
    print_line("")
    rows = (row for shown in view.in_force for row in _rows(shown, view.entity_id))
    print_limit_rows(rows, "from")


def _print_entity(entity: Entity, parent: ParentView | None) -> None:
    metadata = " ".join(f"{key}={value}" for key, value in sorted(entity.metadata.items()))
    print_fields(
        [
            ("entity", entity.id),
            ("name", entity.name),
            ("parent", _describe_parent(entity, parent) if parent else "none"),
            ("metadata", metadata or None),
            ("created", entity.created_at),
        ]
    )


def _describe_parent(entity: Entity, parent: ParentView) -> str:
    charged = "charged by every acquire" if entity.cascade else "not charged (no cascade)"
    exists = "registered" if parent.exists else "NOT registered: check the id"
    return f"{entity.parent_id}, {charged}; {exists}; {PARENT_LIMITS[parent.limits]}"


def _rows(shown: ShownLimits, entity_id: str) -> Iterator[LimitRow]:
    """Return the rows of the limits in force on one resource."""
    resource = "(any other)" if shown.resource == DEFAULT_RESOURCE else shown.resource
    source = LEVELS.get(shown.source or "", "no limits: acquires fail")
    if shown.mode is not None and shown.mode.source is not None:
        source = f"{source}; mode: {shown.mode.text}"
    if shown.entity_id != entity_id:
        source = f"{shown.entity_id}: {source}"
    return limit_rows(resource, shown.limits, source)

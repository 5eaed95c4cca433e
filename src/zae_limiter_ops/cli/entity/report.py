"""Entities, and their limits in force, printed for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.cli.shared.limit_tables import LimitRow, limit_rows, print_limit_rows
from zae_limiter_ops.cli.shared.tables import print_fields, print_line
from zae_limiter_ops.views.formatting import LEVELS

if TYPE_CHECKING:
    from zae_limiter.models.entity import Entity
    from zae_limiter_ops.views.entities import EntityView, ParentView, ShownLimits


# --- an entity with its limits in force -----------------------------------------------------

PARENT_LIMITS = {
    "own": "has limits of its own",
    "defaults": "limited by the defaults",
    "none": "no limits are stored for it",
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

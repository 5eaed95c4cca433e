"""An entity and what applies to it, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zae_limiter.cli.tables import print_fields, print_table, say
from zae_limiter.cli.words import LEVELS, entity_json, limits_json, rate
from zae_limiter.models.entity import Entity
from zae_limiter.naming import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from zae_limiter.cli.inspection import EntityView, InForce


def view_json(view: EntityView) -> dict[str, Any]:
    """Fields may be added; none changes its meaning."""
    return {
        **entity_json(view.entity or Entity(view.entity_id)),
        "exists": view.entity is not None,
        "in_force": [
            {
                "entity_id": each.entity_id,
                "resource": None if each.resource == DEFAULT_RESOURCE else each.resource,
                "source": each.source,
                "limits": limits_json(each.limits),
            }
            for each in view.in_force
        ],
    }


def print_view(view: EntityView) -> None:
    """The entity, then a table of the limits in force."""
    if view.entity is None:
        say(f"entity   {view.entity_id} (never created, so it has no parent)")
    else:
        _print_entity(view.entity)
    say("")
    rows = (row for each in view.in_force for row in _rows(each, view.entity_id))
    print_table(("resource", "limit", "rate>", "burst>", "from"), rows)


def _print_entity(entity: Entity) -> None:
    charged = ", charged by every acquire" if entity.cascade else ", not charged (no cascade)"
    metadata = " ".join(f"{key}={value}" for key, value in sorted(entity.metadata.items()))
    print_fields(
        [
            ("entity", entity.id),
            ("name", entity.name),
            ("parent", f"{entity.parent_id}{charged}" if entity.parent_id else "none"),
            ("metadata", metadata or None),
            ("created", entity.created_at),
        ]
    )


def _rows(each: InForce, entity_id: str) -> Iterator[tuple[str, ...]]:
    """A row for each limit; what they share stands with the first."""
    where = "(any other)" if each.resource == DEFAULT_RESOURCE else each.resource
    source = LEVELS.get(each.source or "", "no limits: acquires fail")
    whose = "" if each.entity_id == entity_id else f"{each.entity_id}: "
    shared = (where, f"{whose}{source}")
    if not each.limits:
        yield shared[0], "", "", "", shared[1]
    for limit in each.limits:
        yield shared[0], limit.name, rate(limit), f"{limit.capacity:,}", shared[1]
        shared = ("", "")

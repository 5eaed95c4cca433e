"""The page of an entity: limits in force, levels, relatives, usage, changes and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zae_limiter import SyncRateLimiter
from zae_limiter_dashboard.board_keeper import READ_UNITS_PER_CHANGED, Refreshed
from zae_limiter_ops.views.entities import EntityView, view_entity
from zae_limiter_ops.views.explanation import Explanation, explain_acquire
from zae_limiter_ops.views.in_force import as_in_force, changed_buckets
from zae_limiter_ops.views.limit_view import LimitView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zae_limiter import SyncRepository
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter.models.entity import Entity
    from zae_limiter_dashboard.store import Watched
    from zae_limiter_ops.views.advice import GivenOptions

MAX_CHILDREN = 50
MAX_EVENTS = 20


@dataclass(frozen=True, slots=True)
class EntityPage:
    """What the page of an entity shows besides its levels."""

    view: EntityView
    children: tuple[Entity, ...]
    has_more_children: bool
    events: tuple[AuditEvent, ...]

    @property
    def entity_id(self) -> str:
        return self.view.entity_id


def entity_page(repository: SyncRepository, entity_id: str) -> EntityPage:
    """Read an entity; an id that was never created has limits as well."""
    children, cursor = repository.list_entities(MAX_CHILDREN, parent_id=entity_id)
    return EntityPage(
        view_entity(repository, entity_id),
        tuple(children),
        cursor is not None,
        tuple(repository.get_audit_events(entity_id, limit=MAX_EVENTS)),
    )


def entity_levels(watched: Watched, entity_id: str) -> Refreshed:
    """Return the levels of all buckets of an entity, and of its parent's if that is charged.

    The units are those of buckets whose limits have changed since they were charged.
    """
    repository, entity = watched.repository, watched.entity(entity_id)
    states = repository.get_buckets(entity_id)
    if entity is not None and entity.cascade and entity.parent_id is not None:
        resources = dict.fromkeys(state.resource for state in states)
        states += repository.read_buckets([(entity.parent_id, name) for name in resources])
    changed = changed_buckets(states, watched.limits_in_force)
    shown = list(as_in_force(repository, states, changed))
    now_ms = repository.charging.clock()
    rows = watched.with_modes([LimitView.at(state, now_ms) for state in shown])
    return Refreshed(rows, len(changed) * READ_UNITS_PER_CHANGED)


def explain(
    repository: SyncRepository,
    entity_id: str,
    resource: str,
    amounts: Mapping[str, int],
    given: GivenOptions,
) -> Explanation:
    """Explain a call that a person has typed in."""
    return explain_acquire(
        SyncRateLimiter(repository), entity_id, resource, amounts or None, given=given
    )

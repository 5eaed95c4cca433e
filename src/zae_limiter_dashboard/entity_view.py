"""The page of an entity: limits in force, levels, relatives, usage, changes and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from zae_limiter import SyncRateLimiter
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter_dashboard.board import READ_UNITS_PER_CHANGED, Refreshed
from zae_limiter_ops.reports.usage_series import UsageChart, usage_chart
from zae_limiter_ops.reports.usage_svg import chart_legend, svg_chart
from zae_limiter_ops.reports.visualization import LARGEST_IN_COLOUR
from zae_limiter_ops.views.entities import EntityView, view_entity
from zae_limiter_ops.views.explanation import Explanation, explain_acquire
from zae_limiter_ops.views.in_force import as_in_force, changed_buckets
from zae_limiter_ops.views.limit_view import LimitView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zae_limiter import SyncRepository
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.usage import UsageSnapshot, WindowName
    from zae_limiter_dashboard.store import Watched
    from zae_limiter_ops.views.advice import GivenOptions

MAX_CHILDREN = 50
MAX_EVENTS = 20
MAX_WINDOWS = 2000
# The windows of the usage chart, and the time that it shows.
SPANS: dict[str, timedelta] = {
    "hourly": timedelta(hours=48),
    "daily": timedelta(days=30),
    "monthly": timedelta(days=366),
}


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


@dataclass(frozen=True, slots=True)
class DrawnUsage:
    """A usage chart as SVG, with the windows behind it."""

    headline: str
    drawings: tuple[tuple[str, str], ...]  # title and SVG of each series
    legend: str
    windows: tuple[UsageSnapshot, ...]


def draw_usage(
    repository: SyncRepository,
    window: str,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
) -> DrawnUsage | None:
    """Return the usage of an entity or a resource; None if there is none."""
    name: WindowName = window if window in SPANS else "hourly"  # type: ignore[assignment]
    now_ms = repository.charging.clock()
    start = iso_from_ms(now_ms - int(SPANS[name].total_seconds() * 1000))
    windows, _ = repository.get_usage_snapshots(entity_id, resource, name, start, limit=MAX_WINDOWS)
    chart = usage_chart(windows, name, LARGEST_IN_COLOUR)
    return None if chart is None else _drawn(chart, windows)


def _drawn(chart: UsageChart, windows: list[UsageSnapshot]) -> DrawnUsage:
    return DrawnUsage(
        chart.headline,
        tuple((series.title, svg_chart(series)) for series in chart.series),
        chart_legend(chart) if len(chart.parts) > 1 else "",
        tuple(reversed(windows)),
    )


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

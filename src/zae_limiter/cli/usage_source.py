"""Where usage is looked up: for an entity, for a resource, or for all resources with limits."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING

from zae_limiter.models.usage import UsageSummary
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.usage_report import DELIMITER

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot

Page = tuple[list["UsageSnapshot"], str | None]


@dataclass(frozen=True, slots=True)
class UsageSource:
    """Windows of one length that start within a span of time."""

    repository: SyncRepository
    subjects: Sequence[tuple[str | None, str | None]]  # entity and resource, one of them or both
    window: str
    start: str | None
    end: str | None

    def page(self, limit: int, next_key: str | None = None) -> Page:
        """Oldest first, after ``next_key``; and the key of the next page."""
        pages = [
            self.repository.get_usage_snapshots(
                *subject, self.window, self.start, self.end, limit, next_key
            )
            for subject in self.subjects
        ]
        if len(pages) == 1:
            return pages[0]
        merged = heapq.merge(*(found for found, _ in pages), key=_order)
        found = list(islice(merged, limit + 1))
        if len(found) <= limit and not any(more for _, more in pages):
            return found, None
        return found[:limit], DELIMITER.join(_order(found[:limit][-1]))

    def summary(self) -> UsageSummary:
        """Over all of them."""
        found = (
            self.repository.get_usage_summary(*subject, self.window, self.start, self.end)
            for subject in self.subjects
        )
        return reduce(_plus, found)


def subjects_of(
    repository: SyncRepository, entity_id: str | None, resource: str | None
) -> list[tuple[str | None, str | None]]:
    """What is named; else every resource that the namespace has limits on."""
    if entity_id is not None or resource is not None:
        return [(entity_id, resource)]
    own = set(repository.list_resources_with_entity_configs()) - {DEFAULT_RESOURCE}
    return [(None, name) for name in sorted(own.union(repository.list_resources_with_defaults()))]


def _order(each: UsageSnapshot) -> tuple[str, ...]:
    return each.window_start, each.window_type, each.entity_id, each.resource


def _plus(one: UsageSummary, other: UsageSummary) -> UsageSummary:
    """Both together; no window is in both."""
    count = one.snapshot_count + other.snapshot_count
    names = {**one.total, **other.total}
    total = {name: one.total.get(name, 0) + other.total.get(name, 0) for name in names}
    starts = [each for each in (one.min_window_start, other.min_window_start) if each]
    ends = [each for each in (one.max_window_start, other.max_window_start) if each]
    return UsageSummary(
        snapshot_count=count,
        total=total,
        average={name: amount / count for name, amount in total.items()},
        min_window_start=min(starts, default=None),
        max_window_start=max(ends, default=None),
    )

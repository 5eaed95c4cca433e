"""Read usage of an entity, of a resource, or of all resources with limits."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING

from zae_limiter.models.usage import UsageSummary
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.usage_report import page_key, sort_key

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot, WindowName

Page = tuple[list["UsageSnapshot"], str | None]


@dataclass(frozen=True, slots=True)
class UsageSource:
    """The usage windows of one length that start within a span of time."""

    repository: SyncRepository
    subjects: Sequence[
        tuple[str | None, str | None]
    ]  # pairs of entity and resource; one of the two may be None
    window: WindowName
    start: str | None
    end: str | None

    def page(self, limit: int, next_key: str | None = None) -> Page:
        """Return windows, oldest first, after ``next_key``, and the key of the next page."""
        pages = [
            self.repository.get_usage_snapshots(
                *subject, self.window, self.start, self.end, limit, next_key
            )
            for subject in self.subjects
        ]
        if len(pages) == 1:
            return pages[0]
        merged = heapq.merge(*(snapshots for snapshots, _ in pages), key=sort_key)
        snapshots = list(islice(merged, limit + 1))
        if len(snapshots) <= limit and not any(next_page for _, next_page in pages):
            return snapshots, None
        snapshots = snapshots[:limit]
        return snapshots, page_key(snapshots[-1])

    def summary(self) -> UsageSummary:
        """Return totals and averages over all subjects."""
        summaries = (
            self.repository.get_usage_summary(*subject, self.window, self.start, self.end)
            for subject in self.subjects
        )
        return reduce(_add, summaries)


def resolve_subjects(
    repository: SyncRepository, entity_id: str | None, resource: str | None
) -> list[tuple[str | None, str | None]]:
    """Return what is named; otherwise every resource that the namespace has limits on."""
    if entity_id is not None or resource is not None:
        return [(entity_id, resource)]
    names = set(repository.list_resources_with_entity_configs()) - {DEFAULT_RESOURCE}
    names.update(repository.list_resources_with_defaults())
    return [(None, name) for name in sorted(names)]


def _add(one: UsageSummary, other: UsageSummary) -> UsageSummary:
    """Return the summary over both; no window may be in both."""
    count = one.snapshot_count + other.snapshot_count
    names = {**one.total, **other.total}
    total = {name: one.total.get(name, 0) + other.total.get(name, 0) for name in names}
    first_starts = [start for start in (one.min_window_start, other.min_window_start) if start]
    last_starts = [start for start in (one.max_window_start, other.max_window_start) if start]
    return UsageSummary(
        snapshot_count=count,
        total=total,
        average={name: amount / count for name, amount in total.items()},
        min_window_start=min(first_starts, default=None),
        max_window_start=max(last_starts, default=None),
    )

"""The buckets that have rejected callers lately, from the counts of usage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.models.timestamps import iso_from_ms

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.usage import UsageSnapshot
    from zae_limiter.refusal import LimitedBy

PAGE = 1000  # hours of one read


@dataclass(slots=True)
class RecentRejections:
    """The acquires that one bucket rejected in this hour and the last.

    ``through_children`` counts the rejected acquires of children, which are part of ``rejected``.
    ``asked`` is the largest rejected amount of each limit. ``limited_by`` has rejected most of them
    in the hour with more rejections, ``last_limited_by`` the last one, at ``last_rejected_at``.
    """

    entity_id: str
    resource: str
    rejected: int = 0
    through_children: int = 0
    asked: dict[str, Any] = field(default_factory=dict)
    limited_by: LimitedBy | None = None
    last_limited_by: LimitedBy | None = None
    last_rejected_at: str | None = None

    def add(self, hour: UsageSnapshot) -> None:
        """Add one of the two hours, the earlier one first."""
        if hour.limited_by is not None and (
            self.limited_by is None or hour.rejected > self.rejected
        ):
            self.limited_by = hour.limited_by
        if hour.last_limited_by is not None:
            self.last_limited_by = hour.last_limited_by
            self.last_rejected_at = hour.last_rejected_at
        self.rejected += hour.rejected
        self.through_children += hour.rejected_through_children
        for name, amount in hour.rejected_amounts.items():
            self.asked[name] = max(amount, self.asked.get(name, 0))


def recent_rejections(
    repository: SyncRepository,
    entity_id: str | None,
    resource: str | None,
    on_page: Callable[[int], object] = lambda _: None,
) -> dict[tuple[str, str], RecentRejections]:
    """Return the buckets that have rejected callers in this hour or the last, by their names."""
    found: dict[tuple[str, str], RecentRejections] = {}
    read = 0
    this_hour = repository.charging.clock() // HOUR_MS
    for page in hourly_usage(repository, this_hour - 1, entity_id, resource):
        for hour in page:
            if hour.rejected:
                bucket = (hour.entity_id, hour.resource)
                found.setdefault(bucket, RecentRejections(*bucket)).add(hour)
        read += len(page)
        on_page(read)
    return found


def hourly_usage(
    repository: SyncRepository,
    first_hour: int,
    entity_id: str | None = None,
    resource: str | None = None,
    *,
    size: int = PAGE,
) -> Iterator[list[UsageSnapshot]]:
    """Yield the pages of all hours of usage from an hour since 1970 on."""
    start_time, next_key = iso_from_ms(first_hour * HOUR_MS), None
    while True:
        page, next_key = repository.get_usage_snapshots(
            entity_id, resource, "hourly", start_time, limit=size, next_key=next_key
        )
        yield page
        if next_key is None:
            return

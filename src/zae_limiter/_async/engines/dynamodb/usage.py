"""Usage, from the hours that were counted; no more of them is read than a page needs."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.usage_hours import DAY, Days, Span, days_of
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.models.timestamps import ms_from_iso
from zae_limiter.models.usage import UsageSnapshot, UsageSummary
from zae_limiter.records.dynamodb.usage import UsageRow
from zae_limiter.usage_report import DELIMITER, HOURS, MAX_PAGE, UsageQuery, page_of, summary_of

MOST_AT_ONCE = 1000


class DynamoUsage:
    """Windows, oldest first."""

    def __init__(self, store: Store) -> None:
        self._client = store.client

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        page_of((), query, limit, next_key)  # refuses a key that makes no sense
        first = query.start_hour if next_key is None else _hour_of(next_key)
        span = Span(max(first, query.start_hour), query.last_hour, _at_once(query, limit))
        days = await self._days(namespace_id, entity_id, resource, span)
        rows: list[UsageRow] = []
        windows = 0
        while windows <= limit and (day := await days.next()):
            rows += day
            windows += len(page_of(day, query, MAX_PAGE, next_key)[0])
        return page_of(rows, query, limit, next_key)

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        span = Span(query.start_hour, query.last_hour)
        days = await self._days(namespace_id, entity_id, resource, span)
        total = summary_of((), query)
        while day := await days.next():
            total = _plus(total, summary_of(day, query))
        return total

    async def _days(
        self, namespace_id: str, entity_id: str | None, resource: str | None, span: Span
    ) -> Days:
        return await days_of(self._client, namespace_id, entity_id, resource, span)


def _at_once(query: UsageQuery, limit: int) -> int:
    """How many hours one bucket may need for a page; the last day is read to its end."""
    shortest = min(HOURS[window] for window in query.windows)
    return min((limit + 1) * shortest + DAY, MOST_AT_ONCE)


def _hour_of(next_key: str) -> int:
    """Where the next page starts; its windows start no earlier than the last one seen."""
    return ms_from_iso(next_key.partition(DELIMITER)[0], "next_key") // HOUR_MS


def _plus(total: UsageSummary, later: UsageSummary) -> UsageSummary:
    """Both together; no window is in both."""
    counts = dict(total.total)
    for name, amount in later.total.items():
        counts[name] = counts.get(name, 0) + amount
    windows = total.snapshot_count + later.snapshot_count
    return UsageSummary(
        snapshot_count=windows,
        total=counts,
        average={name: amount / windows for name, amount in counts.items()},
        min_window_start=total.min_window_start or later.min_window_start,
        max_window_start=later.max_window_start or total.max_window_start,
    )

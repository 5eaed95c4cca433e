"""The port of usage: windows, totals and rankings, added up from stored and live hours."""

from __future__ import annotations

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.usage.reading import (
    HourRange,
    Subject,
    UsageDays,
    usage_days,
)
from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary, WindowType
from zae_limiter.usage.ranking import TopUsage
from zae_limiter.usage.report import DAY, UsagePage, UsageQuery, UsageTotal, window_end


class ItemUsage:
    """Usage windows, added up from stored and live hours."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        *,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        page = UsagePage(query, limit, next_key)
        # The index of a resource is sorted by day and entity, so a page may begin at an entity.
        is_sorted = entity_id is None and query.windows == (WindowType.DAILY,)
        days = await usage_days(
            self._context,
            Subject(namespace_id, entity_id, resource),
            HourRange(
                page.first_hour,
                query.last_hour,
                _rows_per_page(query, limit),
                page.first_entity if is_sorted else "",
                query.now_ms,
            ),
            page,
        )
        while hours := await days.next():
            page.add(hours)
            if page.is_complete(days.next_hour) or (is_sorted and page.is_full):
                break
        return page.end()

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        total = UsageTotal(query, entity_id=entity_id, resource=resource)
        days = await self._all(Subject(namespace_id, entity_id, resource), query)
        while hours := await days.next():
            total.add(hours)
        return total.end()

    async def top(
        self, namespace_id: str, resource: str | None, query: UsageQuery, by: str | None, limit: int
    ) -> UsageRanking:
        top = TopUsage(query, by, limit)
        while top.begin_pass():
            days = await self._all(Subject(namespace_id, None, resource), query)
            while hours := await days.next():
                top.add(hours)
        return top.end()

    async def _all(self, subject: Subject, query: UsageQuery) -> UsageDays:
        hours = HourRange(query.start_hour, query.last_hour, now_ms=query.now_ms)
        return await usage_days(self._context, subject, hours)


def _rows_per_page(query: UsageQuery, limit: int) -> int:
    """Return the approximate number of rows of one bucket that a page needs, plus one."""
    shortest = min(window_end(window, 0) for window in query.windows)
    return (limit + 1) * shortest // DAY + 2

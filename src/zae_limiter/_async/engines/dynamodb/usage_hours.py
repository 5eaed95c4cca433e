"""Stored hours of usage in the order of time, read lazily and a day at a time.

Days are the unit because the longest usage window is a day: a whole day can be added up at once.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter.admission.usage import BucketHour
from zae_limiter.dynamodb.items import usage
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.usage import window_key

DAY = 24
RESOURCE_PAGE = 25  # hours read per query while looking for resources: most have more than a day
AFTER_ALL_HOURS = "~"
AFTER_ALL_USAGE = "#USAGE$"  # `$` comes right after `#`


class HourRange(NamedTuple):
    """Hours since 1970 from ``first`` to before ``end``, read ``page_size`` at a time."""

    first: int
    end: int
    page_size: int | None = None


class HourSource(Protocol):
    """Stored hours in the order of time, read page by page."""

    async def page(self) -> list[BucketHour]:
        """Read the next hours; the list is empty only at the end."""


class EntityHours:
    """The hours of one entity on one resource: a range of keys in the entity's partition."""

    def __init__(
        self,
        client: DynamoClient,
        namespace_id: str,
        entity_id: str,
        resource: str,
        hours: HourRange,
    ) -> None:
        self._query = Query(
            client,
            "PK = :pk AND SK BETWEEN :first AND :last",
            {
                ":pk": s(schema.pk_entity(namespace_id, entity_id)),
                ":first": s(schema.sk_usage(resource, window_key(hours.first))),
                ":last": s(schema.sk_usage(resource, window_key(hours.end - 1))),
            },
            consistent=False,
            page_size=hours.page_size,
        )

    async def page(self) -> list[BucketHour]:
        return [usage.decode(item) for item in await self._query.page()]


class ResourceHours:
    """The hours of all entities on one resource: keys from the index, then the items."""

    def __init__(
        self, client: DynamoClient, namespace_id: str, resource: str, hours: HourRange
    ) -> None:
        self._client = client
        # An index key is the hour with an entity behind it, and so sorts after the hour alone.
        before_end = schema.gsi2_sk_usage(window_key(hours.end), "").rstrip("#")
        self._query = Query(
            client,
            "GSI2PK = :pk AND GSI2SK BETWEEN :first AND :last",
            {
                ":pk": s(schema.gsi2_pk_resource(namespace_id, resource)),
                ":first": s(schema.gsi2_sk_usage(window_key(hours.first), "").rstrip("#")),
                ":last": s(before_end),
            },
            index="GSI2",
            page_size=hours.page_size,
        )

    async def page(self) -> list[BucketHour]:
        rows: list[BucketHour] = []
        while not rows and not self._query.is_over:
            keys = [Key.of(item) for item in await self._query.page()]
            items = await batch_get(self._client, keys, consistent=False)
            rows = [usage.decode(items[key]) for key in keys if key in items]
        return rows


class BufferedHours:
    """A source whose rows can be looked at before they are taken."""

    def __init__(self, source: HourSource) -> None:
        self._source = source
        self._rows: deque[BucketHour] = deque()
        self._is_over = False

    async def next_day(self) -> int | None:
        """Return the day of the next row; None at the end."""
        if not self._rows and not self._is_over:
            self._rows.extend(await self._source.page())
            self._is_over = not self._rows
        return self._rows[0].usage.hour // DAY if self._rows else None

    async def take(self, day: int) -> list[BucketHour]:
        """Take all rows of the next day."""
        rows: list[BucketHour] = []
        while await self.next_day() == day:
            rows.append(self._rows.popleft())
        return rows


class MergedDays:
    """Several sources merged in the order of time, a day at a time."""

    def __init__(self, sources: list[BufferedHours]) -> None:
        self._sources = sources

    async def next(self) -> list[BucketHour]:
        """Return the rows of the next day that has any, sorted by hour; none at the end."""
        days = [await source.next_day() for source in self._sources]
        first = min((day for day in days if day is not None), default=None)
        if first is None:
            return []
        rows: list[BucketHour] = []
        for source, day in zip(self._sources, days, strict=True):
            if day == first:
                rows += await source.take(first)
        return sorted(rows, key=lambda row: row.usage.hour)


async def merged_days(
    client: DynamoClient,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    hours: HourRange,
) -> MergedDays:
    """Return the days of an entity, of a resource, or of both."""
    if hours.first >= hours.end:
        return MergedDays([])
    if entity_id is None:
        return MergedDays(
            [BufferedHours(ResourceHours(client, namespace_id, resource or "", hours))]
        )
    resources = [resource] if resource else await _used_resources(client, namespace_id, entity_id)
    return MergedDays(
        [
            BufferedHours(EntityHours(client, namespace_id, entity_id, name, hours))
            for name in resources
        ]
    )


async def _used_resources(client: DynamoClient, namespace_id: str, entity_id: str) -> list[str]:
    """Find the resources that an entity has used: each query skips the hours of the last one."""
    resources: dict[str, None] = {}
    after = schema.sk_usage("", "").rstrip("#")
    while True:
        query = Query(
            client,
            "PK = :pk AND SK BETWEEN :after AND :end",
            {
                ":pk": s(schema.pk_entity(namespace_id, entity_id)),
                ":after": s(after),
                ":end": s(AFTER_ALL_USAGE),
            },
            consistent=False,
            page_size=RESOURCE_PAGE,
        )
        resources |= dict.fromkeys(usage.resource_of(item) for item in await query.page())
        if query.is_over:
            return list(resources)
        after = schema.sk_usage(list(resources)[-1], AFTER_ALL_HOURS)

"""Hours of usage in their order, a day at a time, read when they are asked for."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.reading import Query, batch_get
from zae_limiter.records.dynamodb import usage
from zae_limiter.records.dynamodb.attributes import s
from zae_limiter.records.dynamodb.keys import Key
from zae_limiter.records.dynamodb.usage import UsageRow, window_key

DAY = 24
LOOKED_AT = 25  # hours, to find out which resources there are
AFTER_ALL_HOURS = "~"
AFTER_ALL_USAGE = "#USAGE$"  # `$` comes right after `#`


class Span(NamedTuple):
    """From the first hour to before the end; how many are read at once."""

    first: int
    end: int
    at_once: int | None = None


class Source(Protocol):
    """Rows in the order of their hours."""

    async def page(self) -> list[UsageRow]:
        """The next ones; none only at the end."""


class OfEntity:
    """An entity's hours on one resource: a range of its own partition."""

    def __init__(
        self, client: DynamoClient, namespace_id: str, entity_id: str, resource: str, span: Span
    ) -> None:
        self._query = Query(
            client,
            "PK = :pk AND SK BETWEEN :first AND :last",
            {
                ":pk": s(schema.pk_entity(namespace_id, entity_id)),
                ":first": s(schema.sk_usage(resource, window_key(span.first))),
                ":last": s(schema.sk_usage(resource, window_key(span.end - 1))),
            },
            consistent=False,
            page_size=span.at_once,
        )

    async def page(self) -> list[UsageRow]:
        return [usage.decode(item) for item in await self._query.page()]


class OfResource:
    """All entities' hours on one resource: the index tells the keys, then the items are read."""

    def __init__(self, client: DynamoClient, namespace_id: str, resource: str, span: Span) -> None:
        self._client = client
        # What belongs to an hour is longer than the hour alone, and so sorts after it.
        before_end = schema.gsi2_sk_usage(window_key(span.end), "").rstrip("#")
        self._query = Query(
            client,
            "GSI2PK = :pk AND GSI2SK BETWEEN :first AND :last",
            {
                ":pk": s(schema.gsi2_pk_resource(namespace_id, resource)),
                ":first": s(schema.gsi2_sk_usage(window_key(span.first), "").rstrip("#")),
                ":last": s(before_end),
            },
            index="GSI2",
            page_size=span.at_once,
        )

    async def page(self) -> list[UsageRow]:
        rows: list[UsageRow] = []
        while not rows and not self._query.is_over:
            keys = [Key.of(item) for item in await self._query.page()]
            found = await batch_get(self._client, keys, consistent=False)
            rows = [usage.decode(found[key]) for key in keys if key in found]
        return rows


class Hours:
    """What was read of a source and not taken yet."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rows: deque[UsageRow] = deque()
        self._is_over = False

    async def first_day(self) -> int | None:
        """The day of the next row; None at the end."""
        await self._read()
        return _day(self._rows[0]) if self._rows else None

    async def take(self, day: int) -> list[UsageRow]:
        """All rows of the day, which is the first."""
        taken: list[UsageRow] = []
        while await self.first_day() == day:
            taken.append(self._rows.popleft())
        return taken

    async def _read(self) -> None:
        if not self._rows and not self._is_over:
            self._rows.extend(await self._source.page())
            self._is_over = not self._rows


class Days:
    """Several sources side by side."""

    def __init__(self, sources: list[Hours]) -> None:
        self._sources = sources

    async def next(self) -> list[UsageRow]:
        """The rows of the next day that has some, in the order of their hours."""
        days = [await source.first_day() for source in self._sources]
        present = [day for day in days if day is not None]
        if not present:
            return []
        first = min(present)
        rows: list[UsageRow] = []
        for source, day in zip(self._sources, days, strict=True):
            if day == first:
                rows += await source.take(first)
        return sorted(rows, key=lambda row: row.usage.hour)


async def days_of(
    client: DynamoClient,
    namespace_id: str,
    entity_id: str | None,
    resource: str | None,
    span: Span,
) -> Days:
    """The days of an entity, of a resource, or of both."""
    if span.first >= span.end:
        return Days([])
    if entity_id is None:
        return Days([Hours(OfResource(client, namespace_id, resource or "", span))])
    resources = [resource] if resource else await _resources(client, namespace_id, entity_id)
    return Days(
        [Hours(OfEntity(client, namespace_id, entity_id, each, span)) for each in resources]
    )


async def _resources(client: DynamoClient, namespace_id: str, entity_id: str) -> list[str]:
    """Those that an entity has used, by leaps over the hours of each."""
    found: dict[str, None] = {}
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
            page_size=LOOKED_AT,
        )
        found |= dict.fromkeys(usage.resource_of(item) for item in await query.page())
        if query.is_over:
            return list(found)
        after = schema.sk_usage(list(found)[-1], AFTER_ALL_HOURS)


def _day(row: UsageRow) -> int:
    return row.usage.hour // DAY

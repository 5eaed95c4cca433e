"""Hours of usage in the order of time, of which a bounded number is read at a time.

Hours that bucket items still hold (``live_hours``) complete the stored rows, so that a query
contains every charge that was acknowledged before it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb import live_hours
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.live_hours import LiveHours, RowId
from zae_limiter._async.engines.dynamodb.partitions import Merged
from zae_limiter._async.engines.dynamodb.requests import MAX_KEYS, Query, batch_get, get_item
from zae_limiter.admission.usage import BucketHour
from zae_limiter.dynamodb.items import keys, registries, usage, usage_reads
from zae_limiter.dynamodb.items.attributes import Item, s, text
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.usage import window_key
from zae_limiter.dynamodb.items.usage_reads import UsageRow

RESOURCE_PAGE = 25  # hours per query while looking for resources: most have more than a day
MAX_QUERY_PAGE = 1000  # rows of one Query, whose answer has at most 1 MB
HELD = 8000  # rows or keys that all queries of one listing hold in memory: some 12 MB
MIN_PAGE = 25  # keys of one Query: fewer keys cost as much
AFTER_ALL_HOURS = "~"
AFTER_ALL_USAGE = "#USAGE$"  # `$` comes right after `#`


class HourRange(NamedTuple):
    """Hours since 1970 from ``first`` to before ``end``; the reader needs about ``wanted`` of them.

    In the index of a resource, the first hour may start at ``first_entity``.
    """

    first: int
    end: int
    wanted: int = MAX_QUERY_PAGE
    first_entity: str = ""

    def page_size(self, queries: int) -> int:
        """Return the number of rows that each of several queries reads at a time."""
        # Twice the average, so that queries with more rows seldom need a second page.
        wanted = 2 * self.wanted // queries if queries > 1 else self.wanted
        return min(max(wanted, MIN_PAGE), MAX_QUERY_PAGE, max(HELD // queries, MIN_PAGE))


class RowSource(Protocol):
    """Stored rows in the order of time."""

    async def take(self) -> list[UsageRow]:
        """Read the next rows; the list is empty only at the end."""


class EntityRows:
    """Rows of one entity: for each resource a range of keys in the entity's partition."""

    def __init__(
        self, context: TableContext, partition: str, resources: list[str], hours: HourRange
    ) -> None:
        queries = [
            Query(
                context.client,
                "PK = :pk AND SK BETWEEN :first AND :last",
                {
                    ":pk": s(partition),
                    ":first": s(schema.sk_usage(resource, window_key(hours.first))),
                    ":last": s(schema.sk_usage(resource, window_key(hours.end - 1))),
                },
                page_size=hours.page_size(len(resources)),
            )
            for resource in resources
        ]
        self._merged = Merged(queries, context.parallel, _hour_in_key)
        self._count = min(hours.wanted, MAX_QUERY_PAGE)

    async def take(self) -> list[UsageRow]:
        return [usage_reads.decode_row(item) for item in await self._merged.take(self._count)]


def _hour_in_key(item: Item) -> str:
    return text(item["SK"]).rpartition(usage.DELIMITER)[2]


class WantedHours(Protocol):
    """The hours that a reader still needs; other rows are not read."""

    def wants(self, entity_id: str, resource: str, hour: int) -> bool: ...

    def is_complete(self, hour: int) -> bool:
        """Return whether the reader needs no hours from this one on."""


class ResourceRows:
    """Rows of all entities on some resources: keys from the index, then the wanted items."""

    def __init__(
        self,
        context: TableContext,
        partitions: list[str],
        hours: HourRange,
        wanted: WantedHours | None = None,
    ) -> None:
        self._client = context.client
        self._wanted = wanted
        queries = [
            Query(
                context.client,
                "GSI2PK = :pk AND GSI2SK BETWEEN :first AND :last",
                {
                    ":pk": s(partition),
                    ":first": s(_index_key(hours.first, hours.first_entity)),
                    ":last": s(_index_key(hours.end)),
                },
                index="GSI2",
                page_size=hours.page_size(len(partitions)),
            )
            for partition in partitions
        ]
        self._merged = Merged(queries, context.parallel, lambda entry: text(entry["GSI2SK"]))
        self._count = min(hours.wanted, MAX_KEYS)

    async def take(self) -> list[UsageRow]:
        while indexed := await self._keys():
            items = await batch_get(self._client, indexed, consistent=True)
            if items:  # rows may have expired since they were indexed
                return [usage_reads.decode_row(items[key]) for key in indexed if key in items]
        return []

    async def _keys(self) -> list[Key]:
        """Return the keys of the next wanted rows; an empty list at the end."""
        found: list[Key] = []
        wanted = self._wanted
        while not found and (entries := await self._merged.take(self._count)):
            found = [Key.of(entry) for entry in entries]
            if wanted is not None:
                if wanted.is_complete(usage_reads.hour_of(found[0])[2]):
                    return []
                found = [key for key in found if wanted.wants(*usage_reads.hour_of(key))]
        return found


def _index_key(hour: int, entity_id: str = "") -> str:
    """Return the place in the index before an hour's entities, or at one of them."""
    return schema.gsi2_sk_usage(window_key(hour), entity_id).rstrip("#")


class UsageHours:
    """The stored and live hours of a query, in the order of time."""

    def __init__(
        self, client: DynamoClient, namespace_id: str, rows: RowSource, live: LiveHours
    ) -> None:
        self._client = client
        self._namespace_id = namespace_id
        self._rows = rows
        self._live = live
        self._is_over = False

    async def next(self) -> list[BucketHour]:
        """Return the next hours that have counts; an empty list at the end."""
        while not self._is_over:
            stored = await self._rows.take()
            self._is_over = not stored
            rows = await live_hours.resolve(
                self._client, self._namespace_id, self._with_live(stored)
            )
            counted = [_bucket_hour(row) for row in rows]
            if hours := [hour for hour in counted if not hour.usage.is_empty]:
                return hours
        return []

    def _with_live(self, stored: list[UsageRow]) -> list[UsageRow]:
        """Complete rows by live hours, and add rows for live hours that are not stored.

        More rows of the last stored hour may follow, so later live hours wait until the end.
        """
        rows = [live_hours.completed(row, self._live.pop(RowId.of(row), {})) for row in stored]
        passed = [row_id for row_id in self._live if self._is_over or row_id.hour < stored[-1].hour]
        for hour, entity_id, resource in passed:
            origins = self._live.pop(RowId(hour, entity_id, resource))
            rows.append(UsageRow(entity_id, resource, hour, origins))
        return sorted(rows, key=RowId.of)


def _bucket_hour(row: UsageRow) -> BucketHour:
    origin_hours = live_hours.stored_origins(row).values()
    return BucketHour(row.entity_id, row.resource, usage_reads.window_usage(row.hour, origin_hours))


class Subject(NamedTuple):
    """The subject of a query: an entity, a resource, both, or a whole namespace."""

    namespace_id: str
    entity_id: str | None
    resource: str | None


async def usage_hours(
    context: TableContext, subject: Subject, hours: HourRange, wanted: WantedHours | None = None
) -> UsageHours:
    """Return the hours of an entity, of a resource, of both, or of a whole namespace.

    In a query about several entities, rows that are not ``wanted`` may be left out.
    """
    namespace_id, entity_id, resource = subject
    if entity_id is None or resource is None:  # the index must know this client's own hours
        await context.later.drain()
    live: LiveHours = {}
    rows: RowSource
    if hours.first >= hours.end or not context.usage_days:  # 0 days: the table keeps no usage
        rows = EntityRows(context, "", [], hours)
    elif entity_id is not None:
        found = await live_hours.of_entity(context.client, namespace_id, entity_id, resource)
        live = {row_id: found[row_id] for row_id in found if hours.first <= row_id.hour < hours.end}
        partition = schema.pk_entity(namespace_id, entity_id)
        resources = [resource] if resource else await _used_resources(context.client, partition)
        rows = EntityRows(context, partition, resources, hours)
    else:
        resources = (
            [resource] if resource else await _resources_in_use(context.client, namespace_id)
        )
        partitions = [
            partition
            for name in resources
            for partition in schema.gsi2_partitions(namespace_id, name)
        ]
        rows = ResourceRows(context, partitions, hours, wanted)
    return UsageHours(context.client, namespace_id, rows, live)


async def _used_resources(client: DynamoClient, partition: str) -> list[str]:
    """Find the resources that an entity has used: each query skips the hours of the last one."""
    resources: dict[str, None] = {}
    after = schema.sk_usage("", "").rstrip("#")
    while True:
        query = Query(
            client,
            "PK = :pk AND SK BETWEEN :after AND :end",
            {":pk": s(partition), ":after": s(after), ":end": s(AFTER_ALL_USAGE)},
            page_size=RESOURCE_PAGE,
        )
        resources |= dict.fromkeys(usage_reads.resource_of(item) for item in await query.page())
        if query.is_over:
            return list(resources)
        after = schema.sk_usage(list(resources)[-1], AFTER_ALL_HOURS)


async def _resources_in_use(client: DynamoClient, namespace_id: str) -> list[str]:
    registry = await get_item(client, keys.resources_in_use(namespace_id))
    return registries.registered_resources(registry)

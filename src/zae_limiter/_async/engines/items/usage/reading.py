"""Hours of usage by day, of which a bounded number is read at a time.

Hours that bucket items still hold (``live``) complete the stored rows, so that a query contains
every charge that was acknowledged before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from zae_limiter import schema
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.partitions import Merged
from zae_limiter._async.engines.items.port import MAX_KEYS, ItemStore
from zae_limiter._async.engines.items.usage import live
from zae_limiter._async.engines.items.usage.live import LiveHours
from zae_limiter.admission.usage import BucketHour, HourUsage, total_of
from zae_limiter.items.stored import keys, registries
from zae_limiter.items.stored.attributes import Item, text
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.query import BETWEEN, ItemQuery, Range
from zae_limiter.items.stored.usage import day_row
from zae_limiter.items.stored.usage.day_row import RowId, UsageRow, day_key, day_of
from zae_limiter.models.usage import WindowType
from zae_limiter.usage.report import UsageReport

RESOURCE_PAGE = 4  # rows per query while looking for resources: about 4 KB, one read unit
MAX_QUERY_PAGE = 1000  # rows or keys of one Query, whose answer has at most 1 MB
HELD = 8000  # rows or keys that all queries of one listing hold in memory: some 16 MB
MIN_ROWS = 4  # rows of one Query: fewer rows cost as much
MIN_KEYS = 25  # keys of one Query of an index: fewer keys cost as much
AFTER_ALL = "~"  # sorts after every day and every number of a shard
AFTER_ALL_USAGE = "#USAGE$"  # `$` comes right after `#`


class HourRange(NamedTuple):
    """Hours since 1970 from ``first`` to before ``end``; the reader needs about ``wanted`` rows.

    In the index of a resource, the first day may start at ``first_entity``. ``now_ms`` is that of
    the query.
    """

    first: int
    end: int
    wanted: int = MAX_QUERY_PAGE
    first_entity: str = ""
    now_ms: int = 0

    @property
    def first_day(self) -> int:
        return day_of(self.first)

    @property
    def last_day(self) -> int:
        return day_of(self.end - 1)

    def page_size(self, queries: int, least: int) -> int:
        """Return the number of rows or keys that each of several queries reads at a time."""
        # Twice the average, so that queries with more rows seldom need a second page.
        queries = max(queries, 1)  # a namespace without resources needs none
        wanted = 2 * self.wanted // queries if queries > 1 else self.wanted
        return min(max(wanted, least), MAX_QUERY_PAGE, max(HELD // queries, least))


class RowSource(Protocol):
    """Stored rows in the order of days, and of entities within a day."""

    async def take(self) -> list[UsageRow]:
        """Read the next rows; the list is empty only at the end."""


class EntityRows:
    """Rows of one entity: for each resource a range of keys in the entity's partition."""

    def __init__(
        self, context: TableContext, partition: str, resources: list[str], hours: HourRange
    ) -> None:
        queries = [
            ItemQuery(
                partition,
                Range(
                    BETWEEN,
                    schema.sk_usage(resource, day_key(hours.first_day)),
                    schema.sk_usage(resource, day_key(hours.last_day), AFTER_ALL),
                ),
                page_size=hours.page_size(len(resources), MIN_ROWS),
            )
            for resource in resources
        ]
        pages = list(map(context.store.query, queries))
        self._merged = Merged(pages, context.parallel, _day_in_key)
        self._count = min(hours.wanted, MAX_QUERY_PAGE)

    async def take(self) -> list[UsageRow]:
        return [day_row.decode_row(item) for item in await self._merged.take(self._count)]


def _day_in_key(item: Item) -> str:
    return text(item["SK"]).split(day_row.DELIMITER)[3]


class ResourceRows:
    """Rows of all entities on some resources: keys from the index, then the wanted items.

    The first call reads as many rows as a page of one bucket needs, each later one twice as many.
    """

    def __init__(
        self,
        context: TableContext,
        partitions: list[str],
        hours: HourRange,
        report: UsageReport,
    ) -> None:
        self._store = context.store
        self._report = report
        first = schema.gsi2_sk_usage(day_key(hours.first_day), hours.first_entity)
        days = Range(BETWEEN, first, schema.gsi2_sk_usage(day_key(hours.last_day + 1)))
        queries = [
            ItemQuery(each, days, "GSI2", page_size=hours.page_size(len(partitions), MIN_KEYS))
            for each in partitions
        ]
        pages = list(map(context.store.query, queries))
        self._merged = Merged(pages, context.parallel, lambda entry: text(entry["GSI2SK"]))
        self._count = min(hours.wanted, MAX_KEYS)

    async def take(self) -> list[UsageRow]:
        while indexed := await self._keys():
            items = await self._store.get_several(indexed, consistent=True)
            if items:  # rows may have expired since they were indexed
                return [day_row.decode_row(items[key]) for key in indexed if key in items]
        return []

    async def _keys(self) -> list[Key]:
        """Return the keys of the next wanted rows; an empty list at the end."""
        found: list[Key] = []
        while not found and (entries := await self._merged.take(self._count)):
            self._count = min(2 * self._count, MAX_KEYS)
            row_ids = {key: RowId.of(key) for key in map(Key.of, entries)}
            if self._report.is_complete(next(iter(row_ids.values())).day * day_row.DAY):
                return []
            found = [
                key
                for key, row_id in row_ids.items()
                if self._report.wants(row_id.entity_id, row_id.resource, row_id.day)
            ]
        return found


class UsageDays:
    """The stored and live hours of a query, in the order of days, entities and resources."""

    def __init__(
        self,
        store: ItemStore,
        namespace_id: str,
        rows: RowSource,
        live_hours: LiveHours,
        hours: HourRange,
    ) -> None:
        self._store = store
        self._namespace_id = namespace_id
        self._rows = rows
        self._live = live_hours
        self._range = hours
        self._held: list[UsageRow] = []
        self._is_over = False

    @property
    def next_hour(self) -> int:
        """The hour before which all hours have been returned."""
        return self._held[0].id.day * day_row.DAY if self._held else self._range.end

    async def next(self) -> list[BucketHour]:
        """Return the next hours that have counts; an empty list at the end."""
        while not self._is_over:
            stored = await self._rows.take()
            self._is_over = not stored
            rows = self._with_live(self._whole_days(stored))
            rows = await live.resolve(
                self._store, self._namespace_id, rows, self._live.origins, self._range.now_ms
            )
            if hours := _bucket_hours(rows, self._range):
                return hours
        return []

    def _whole_days(self, stored: list[UsageRow]) -> list[UsageRow]:
        """Hold back the rows of the last entity and day: more shards or resources may follow."""
        rows = self._held + stored
        self._held = []
        if not self._is_over:
            last = rows[-1].id[:2]
            self._held = [row for row in rows if row.id[:2] == last]
        return rows[: len(rows) - len(self._held)]

    def _with_live(self, rows: list[UsageRow]) -> list[UsageRow]:
        """Complete rows by live hours, and add rows for live hours that have no row.

        Rows of the days that are held back may still follow.
        """
        by_row = self._live.by_row
        whole = [
            row._replace(hours={**by_row.pop(row.id, {}), **row.hours})  # stored hours are final
            for row in rows
        ]
        passed = [row_id for row_id in by_row if self._is_over or row_id.day < self._held[0].id.day]
        return whole + [UsageRow(row_id, by_row.pop(row_id)) for row_id in passed]


def _bucket_hours(rows: Iterable[UsageRow], hours: HourRange) -> list[BucketHour]:
    """Add up the hours of all shards and origins of each bucket; empty ones are left out."""
    by_bucket: dict[tuple[int, str, str], dict[int, list[HourUsage]]] = {}
    for row in rows:
        of_bucket = by_bucket.setdefault(row.id[:3], {})
        for (hour, _), usage in row.hours.items():
            if hours.first <= hour < hours.end:
                of_bucket.setdefault(hour, []).append(usage)
    counted = [
        BucketHour(entity_id, resource, total_of(of_bucket[hour]).rounded_down())
        for (_, entity_id, resource), of_bucket in sorted(by_bucket.items())
        for hour in sorted(of_bucket)
    ]
    return [each for each in counted if not each.usage.is_empty]


class ItemUsage:
    """Reads usage from stored and live hours."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    async def read(
        self, namespace_id: str, entity_id: str | None, resource: str | None, report: UsageReport
    ) -> None:
        query = report.query
        # The index of a resource is sorted by day and entity, so a report may begin at an entity.
        is_sorted = entity_id is None and query.windows == (WindowType.DAILY,)
        hours = HourRange(
            report.first_hour,
            query.last_hour,
            report.rows_of_bucket or MAX_QUERY_PAGE,
            report.first_entity if is_sorted else "",
            query.now_ms,
        )
        days = await self._days(namespace_id, entity_id, resource, hours, report)
        while rows := await days.next():
            report.add(rows)
            if report.is_complete(days.next_hour) or (is_sorted and report.is_full):
                return

    async def _days(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        hours: HourRange,
        report: UsageReport,
    ) -> UsageDays:
        """Return the hours by day; of several entities, rows that nobody wants may be missing."""
        context = self._context
        if entity_id is None or resource is None:  # the index must know this client's own days
            await context.later.drain()
        live_hours = LiveHours({}, set())
        rows: RowSource
        if hours.first >= hours.end or not context.usage_days:  # 0 days: the table keeps no usage
            rows = EntityRows(context, "", [], hours)
        elif entity_id is not None:
            live_hours = await live.of_entity(
                context.store, namespace_id, entity_id, resource, hours.now_ms
            )
            partition = schema.pk_entity(namespace_id, entity_id)
            resources = [resource] if resource else await _used_resources(context.store, partition)
            rows = EntityRows(context, partition, resources, hours)
        else:
            resources = (
                [resource] if resource else await _resources_in_use(context.store, namespace_id)
            )
            partitions = [
                partition
                for name in resources
                for partition in schema.gsi2_partitions(namespace_id, name)
            ]
            rows = ResourceRows(context, partitions, hours, report)
        return UsageDays(context.store, namespace_id, rows, live_hours, hours)


async def _used_resources(store: ItemStore, partition: str) -> list[str]:
    """Find the resources that an entity has used: each query skips the days of the last one."""
    resources: dict[str, None] = {}
    after = schema.sk_usage()
    while True:
        sort = Range(BETWEEN, after, AFTER_ALL_USAGE)
        pages = store.query(ItemQuery(partition, sort, page_size=RESOURCE_PAGE))
        resources |= dict.fromkeys(day_row.resource_of(item) for item in await pages.page())
        if pages.is_over:
            return list(resources)
        after = schema.sk_usage(list(resources)[-1], AFTER_ALL)


async def _resources_in_use(store: ItemStore, namespace_id: str) -> list[str]:
    registry = await store.get(keys.resources_in_use(namespace_id))
    return registries.registered_resources(registry)

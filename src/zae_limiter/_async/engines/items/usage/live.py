"""The hours that bucket items still hold: the running one, and a finished one until stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter.admission.shards.tree import Shard, live
from zae_limiter.admission.usage import HourUsage
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item, integer, text
from zae_limiter.items.stored.keys import BucketId, Key, ShardId
from zae_limiter.items.stored.usage import day_row
from zae_limiter.items.stored.usage.day_row import RowId, UsageRow
from zae_limiter.items.stored.usage.hours import ORIGIN

MAX_ROUNDS = 12  # each round finds shards that split off the last ones: 2^12 are enough

HoursOfRow = dict[tuple[int, str], HourUsage]  # by hour and origin


class LiveHours(NamedTuple):
    """Hours of bucket items by the row that they belong to, and the origins that were read.

    What has expired by ``now_ms`` is not held, and no usage.
    """

    by_row: dict[RowId, HoursOfRow]
    origins: set[str]
    now_ms: int = 0

    def add(self, shard_id: ShardId, item: Item) -> None:
        """Add the hours that an item holds."""
        for usage in bucket_item.counted_hours(item, self.now_ms):
            row_id, origin = RowId(day_row.day_of(usage.hour), *shard_id[1:]), text(item[ORIGIN])
            self.by_row.setdefault(row_id, {})[usage.hour, origin] = usage
            self.origins.add(origin)


async def of_entity(
    store: ItemStore,
    namespace_id: str,
    entity_id: str,
    resource: str | None,
    now_ms: int,
) -> LiveHours:
    """Read the hours that all live shards of an entity hold, on one resource or on all.

    They must be read before the stored rows: an hour that ends meanwhile is then in the rows.
    """
    if resource is None:
        unread = await _indexed_shards(store, namespace_id, entity_id)
    else:
        unread = {BucketId(namespace_id, entity_id, resource).shard(0)}
    read: set[ShardId] = set()
    shards: dict[BucketId, dict[Shard, int]] = {}
    found = LiveHours({}, set(), now_ms)
    for _ in range(MAX_ROUNDS):
        wanted = {keys.bucket(*shard_id): shard_id for shard_id in unread}
        read |= unread
        items = await store.get_several(wanted, consistent=True)
        for key, item in items.items():
            shard_id = wanted[key]
            shard = Shard(shard_id.number, integer(item[bucket_item.SHARDS]))
            generation = integer(item[bucket_item.GENERATION])
            shards.setdefault(shard_id.bucket_id, {})[shard] = generation
            found.add(shard_id, item)
        unread = {
            bucket_id.shard(shard.number)
            for bucket_id, known in shards.items()
            for shard in live(known)
        } - read
        if not unread:
            return found
    raise RateLimiterUnavailable("the shards of this bucket keep changing; try again")


async def _indexed_shards(store: ItemStore, namespace_id: str, entity_id: str) -> set[ShardId]:
    pages = store.query(keys.indexed_buckets(namespace_id, entity_id))
    indexed = [schema.parse_bucket_pk(Key.of(item).pk) for item in await pages.all()]
    return {ShardId(*key) for key in indexed}


async def resolve(
    store: ItemStore,
    namespace_id: str,
    rows: Sequence[UsageRow],
    known: Collection[str],
    now_ms: int,
) -> list[UsageRow]:
    """Add the hours that bucket items hold to rows with open origins.

    Origins that are ``known`` were read before the rows. The items of the others are read now, and
    then their rows once more: an item may have stored an hour after its row was read.
    """
    unread = [row for row in rows if not row.open_origins.issubset(known)]
    if not unread:
        return list(rows)
    shard_ids = {row.id: row.id.shard_id(namespace_id) for row in unread}
    buckets = [keys.bucket(*shard_id) for shard_id in shard_ids.values()]
    items = await store.get_several(buckets, consistent=True)
    found = LiveHours({}, set(), now_ms)
    for shard_id in set(shard_ids.values()):
        if (item := items.get(keys.bucket(*shard_id))) is not None:
            found.add(shard_id, item)
    stored = await store.get_several([row.id.key(namespace_id) for row in unread], consistent=True)
    again = {row.id: row for row in map(day_row.decode_row, stored.values())}
    return [
        _with_later(row, again.get(row.id, row), found.by_row.get(row.id, {}))
        if row.id in shard_ids
        else row
        for row in rows
    ]


def _with_later(row: UsageRow, again: UsageRow, held: HoursOfRow) -> UsageRow:
    """Return a row with the hours that were read later; stored hours are final."""
    is_open = row.open_origins | again.open_origins
    added = {place: held[place] for place in held if place[1] in is_open}
    return row._replace(hours={**row.hours, **added, **again.hours})

"""The hours that bucket items still hold: the running one, and a finished one until stored."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from zae_limiter import schema
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.requests import Query, batch_get
from zae_limiter.admission.shards.tree import Shard, live
from zae_limiter.dynamodb.items import bucket as bucket_item
from zae_limiter.dynamodb.items import hours, keys, usage, usage_reads
from zae_limiter.dynamodb.items.attributes import integer, s
from zae_limiter.dynamodb.items.bucket import BucketId
from zae_limiter.dynamodb.items.keys import Key
from zae_limiter.dynamodb.items.usage import OriginHour
from zae_limiter.dynamodb.items.usage_reads import UsageRow
from zae_limiter.exceptions import RateLimiterUnavailable

MAX_ROUNDS = 12  # each round finds shards that split off the last ones: 2^12 are enough


class RowId(NamedTuple):
    """The identity of a usage row in a namespace; row ids sort by time."""

    hour: int
    entity_id: str
    resource: str

    @classmethod
    def of(cls, row: UsageRow) -> RowId:
        return cls(row.hour, row.entity_id, row.resource)


LiveHours = dict[RowId, dict[str, OriginHour]]


async def of_entity(
    client: DynamoClient, namespace_id: str, entity_id: str, resource: str | None
) -> LiveHours:
    """Read the hours that all live shards of an entity hold, on one resource or on all.

    They must be read before the stored rows: an hour that ends meanwhile is then in the rows.
    """
    if resource is None:
        unread = await _indexed_shards(client, namespace_id, entity_id)
    else:
        unread = {BucketId(namespace_id, entity_id, resource).shard(0)}
    read: set[bucket_item.ShardId] = set()
    shards: dict[BucketId, dict[Shard, int]] = {}
    live_hours: LiveHours = {}
    for _ in range(MAX_ROUNDS):
        wanted = {keys.bucket(*shard_id): shard_id for shard_id in unread}
        read |= unread
        items = await batch_get(client, wanted, consistent=True)
        for key, item in items.items():
            bucket_id = wanted[key].bucket_id
            shard = Shard(wanted[key].number, integer(item[bucket_item.SHARDS]))
            shards.setdefault(bucket_id, {})[shard] = integer(item[bucket_item.GENERATION])
            for origin_hour in hours.counted_hours(item):
                row_id = RowId(origin_hour.hour, entity_id, bucket_id.resource)
                live_hours.setdefault(row_id, {})[origin_hour.origin] = origin_hour
        unread = {
            bucket_id.shard(shard.number)
            for bucket_id, known in shards.items()
            for shard in live(known)
        } - read
        if not unread:
            return live_hours
    raise RateLimiterUnavailable("the shards of this bucket keep changing; try again")


async def _indexed_shards(
    client: DynamoClient, namespace_id: str, entity_id: str
) -> set[bucket_item.ShardId]:
    query = Query(
        client,
        "GSI3PK = :pk AND begins_with(GSI3SK, :sk)",
        {":pk": s(schema.gsi3_pk_entity(namespace_id, entity_id)), ":sk": s("BUCKET#")},
        index="GSI3",
    )
    indexed = [schema.parse_bucket_pk(Key.of(item).pk) for item in await query.all()]
    return {bucket_item.ShardId(*key) for key in indexed}


async def resolve(
    client: DynamoClient, namespace_id: str, rows: Iterable[UsageRow]
) -> list[UsageRow]:
    """Replace the open origins of rows by the counts of their bucket items.

    If an item no longer holds the hour, it has stored the hour meanwhile, and the row is read
    again. An origin that is open even then has counted nothing.
    """
    rows = list(rows)
    wanted = {
        (row_id, origin): key
        for row_id, row in ((RowId.of(row), row) for row in rows)
        for origin in _open_origins(row)
        if (key := _bucket_key(namespace_id, row_id, origin)) is not None
    }
    items = await batch_get(client, wanted.values(), consistent=True)
    counted: LiveHours = {}
    for (row_id, origin), key in wanted.items():
        for origin_hour in hours.counted_hours(items[key]) if key in items else ():
            if (origin_hour.origin, origin_hour.hour) == (origin, row_id.hour):
                counted.setdefault(row_id, {})[origin] = origin_hour
    resolved = [completed(row, counted.get(RowId.of(row), {})) for row in rows]
    stored = await _read_again(client, namespace_id, [row for row in resolved if _is_open(row)])
    return [completed(row, stored.get(RowId.of(row), {})) for row in resolved]


async def _read_again(
    client: DynamoClient, namespace_id: str, rows: Iterable[UsageRow]
) -> LiveHours:
    wanted = {
        keys.usage(namespace_id, row.entity_id, row.resource, usage.window_key(row.hour)): RowId.of(
            row
        )
        for row in rows
    }
    items = await batch_get(client, wanted, consistent=True)
    return {
        wanted[key]: stored_origins(usage_reads.decode_row(item)) for key, item in items.items()
    }


def completed(row: UsageRow, counted: dict[str, OriginHour]) -> UsageRow:
    """Return a row with counts for its open origins; stored origins are final."""
    return row._replace(origins={**row.origins, **counted, **stored_origins(row)})


def stored_origins(row: UsageRow) -> dict[str, OriginHour]:
    return {origin: value for origin, value in row.origins.items() if value is not usage_reads.OPEN}


def _open_origins(row: UsageRow) -> list[str]:
    return [origin for origin, value in row.origins.items() if value is usage_reads.OPEN]


def _is_open(row: UsageRow) -> bool:
    return usage_reads.OPEN in row.origins.values()


def _bucket_key(namespace_id: str, row_id: RowId, origin: str) -> Key | None:
    """Return the key of an origin's bucket item; None if the origin does not name the shard."""
    with suppress(ValueError):
        return keys.bucket(namespace_id, row_id.entity_id, row_id.resource, hours.shard_of(origin))
    return None

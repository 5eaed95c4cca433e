"""Listings over indexes whose entries are spread over partitions."""

import pytest

from tests.integration.dynamodb.ports.world import NS, Raw
from zae_limiter import PermissionDenied, schema
from zae_limiter._async.engines.items.bucket_queries import BucketQueries, IndexedBuckets
from zae_limiter._async.engines.items.partitions import (
    PARALLEL_QUERIES,
    InTurn,
    Merged,
    Unordered,
)
from zae_limiter._async.engines.items.sharding.shard_reader import ShardReader
from zae_limiter._sync.engines.items import bucket_queries as sync_queries
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.stored import bucket, keys
from zae_limiter.items.stored.attributes import text
from zae_limiter.runtime.parallel import Parallel

COUNT = 150
IDS = [f"user-{number}" for number in range(COUNT - 2)] + ["a b", "ünï"]


def entry(entity_id, resource="api", shard=0):
    """What an index needs of a bucket."""
    place = (NS, entity_id, resource, shard)
    return {**keys.bucket(*place).attributes, **bucket.index_keys(*place)}


@pytest.fixture
def stored(raw):
    """Buckets of many entities on one resource, a few of them split, and one on another."""
    split = [entry(entity_id, shard=1) for entity_id in IDS[:20]]
    raw.put(*map(entry, IDS), *split, entry("user-1", "other"))
    return raw


def queries(store, page_size=None):
    return IndexedBuckets(NS, None, "api").pages(store, None, page_size)


def keys_of(entries):
    return [text(each["PK"]) for each in entries]


async def pages(queries, listed, limit):
    """List keys of first shards page by page, each with the cursor of the one before."""
    found, after, count = [], None, 0
    while True:
        page = await queries.first_shards(listed, after, limit)
        found += [schema.parse_bucket_pk(key.pk)[1:3] for key in page]
        count += 1
        if len(page) < limit:
            return found, count
        after = found[-1]


@pytest.fixture
def bucket_queries(proxied):

    return BucketQueries(proxied.store, ShardReader(proxied.store, BucketCache()), Parallel())


@pytest.mark.parametrize("limit", [pytest.param(1, marks=pytest.mark.slow), 7, 50, 1000])
async def test_buckets_of_a_resource_are_paged_in_the_order_of_ids(bucket_queries, stored, limit):
    if limit == 7:
        stored.boto.delete_item(
            TableName=stored.table, Key=keys.bucket(NS, "user-7", "api").attributes
        )
    listed = IndexedBuckets(NS, None, "api")
    found, _ = await pages(bucket_queries, listed, limit)
    gone = {"user-7"} if limit == 7 else set()
    in_order = sorted(f"{entity_id}#" for entity_id in {*IDS} - gone)
    assert found == [(entity_id[:-1], "api") for entity_id in in_order]


@pytest.mark.parametrize("limit", [7, 1000])
async def test_buckets_of_a_namespace_are_paged_without_gap_or_overlap(
    bucket_queries, stored, limit
):
    found, _ = await pages(bucket_queries, IndexedBuckets(NS), limit)
    assert sorted(found) == sorted([*((id_, "api") for id_ in IDS), ("user-1", "other")])
    again, _ = await pages(bucket_queries, IndexedBuckets(NS), limit)
    assert found == again


async def test_a_page_can_start_after_a_bucket_that_is_gone(bucket_queries, stored):
    for listed in (IndexedBuckets(NS), IndexedBuckets(NS, None, "api")):
        first = await bucket_queries.first_shards(listed, None, 40)
        last = schema.parse_bucket_pk(first[-1].pk)[1:3]
        rest = await bucket_queries.first_shards(listed, last, 1000)
        stored.boto.delete_item(TableName=stored.table, Key=first[-1].attributes)
        assert await bucket_queries.first_shards(listed, last, 1000) == rest
        stored.put(entry(*last))


async def test_a_page_reads_little_more_than_it_shows(bucket_queries, stored, proxy):
    stored.put(*(entry(f"more-{number}") for number in range(1500)))
    with proxy.measure() as seen:
        await bucket_queries.first_shards(IndexedBuckets(NS, None, "api"), None, 101)
    read = sum(query.answer["ScannedCount"] for query in seen.of("Query"))
    assert 101 <= read < 900
    assert seen.calls < 2 * schema.PARTITIONS


@pytest.mark.parametrize("listing", [InTurn, Unordered])
async def test_partitions_are_read_a_few_at_a_time(proxied, stored, proxy, listing):
    with proxy.measure() as seen:
        listed = listing(queries(proxied.store), Parallel())
        found = []
        while page := await listed.page():
            found += keys_of(page)
    assert listed.is_over
    assert len(found) == len(set(found)) == COUNT + 20
    assert seen.calls == schema.PARTITIONS
    assert at_once(seen) <= PARALLEL_QUERIES


async def test_a_merge_reads_a_few_at_a_time_and_keeps_little(proxied, stored, proxy):
    with proxy.measure() as seen:
        merged = Merged(queries(proxied.store, 2), Parallel(), lambda each: text(each["GSI2SK"]))
        found = []
        while some := await merged.take(9):
            found += [text(each["GSI2SK"]) for each in some]
            assert merged.held <= 2 * schema.PARTITIONS
    assert found == sorted(found)
    assert len(found) == COUNT + 20
    assert at_once(seen) <= PARALLEL_QUERIES


def at_once(seen):
    """The largest number of requests that were under way at the same time."""
    begun = [(each.started, 1) for each in seen.requests]
    ended = [(each.ended, -1) for each in seen.requests]
    most = now = 0
    for _, step in sorted(begun + ended):
        now += step
        most = max(most, now)
    return most


async def test_a_listing_that_stops_early_reads_one_partition(proxied, stored, proxy):
    with proxy.measure() as seen:
        await InTurn(queries(proxied.store), Parallel()).page()
    assert seen.calls == 1


async def test_taking_leaves_the_rest_for_later(proxied, stored):
    in_turn = InTurn(queries(proxied.store), Parallel())
    found = []
    while some := await in_turn.take(11):
        assert len(some) == 11 or in_turn.is_over
        found += keys_of(some)
    assert (len(found), in_turn.count) == (COUNT + 20, COUNT + 20)


async def test_an_error_in_one_partition_ends_the_listing(proxied, stored, proxy):
    async def read(listing):
        while await listing.page():
            pass

    for listing in (InTurn, Unordered):
        listed = listing(queries(proxied.store), Parallel())
        with proxy.fault("deny", times=1, skip=5), pytest.raises(PermissionDenied):
            await read(listed)


def test_threads_list_the_same(sync_ports, endpoint, boto):
    client = sync_ports.client
    Raw(boto(endpoint), client.table).put(*map(entry, IDS))
    reader = sync_queries.ShardReader(sync_ports.store, BucketCache())
    found = sync_queries.BucketQueries(sync_ports.store, reader, Parallel("threadpool"))
    for listed in (sync_queries.IndexedBuckets(NS), sync_queries.IndexedBuckets(NS, None, "api")):
        assert len(found.first_shards(listed, None, 1000)) == COUNT


async def test_entities_and_their_buckets_are_in_one_partition(ports, raw):
    raw.put(*(entry(id_, resource) for id_ in IDS for resource in ("api", "b", "c")))
    seen, cursor = [], ""
    while cursor is not None:
        page, cursor = await ports.entities.page(NS, None, cursor, 11)
        seen += [entity.id for entity in page]
    assert sorted(seen) == sorted(IDS)

"""Usage that is not stored yet: it is read from the buckets that count it."""

import pytest

from tests.integration.dynamodb.ports.test_usage import register
from tests.integration.dynamodb.ports.world import NOW_MS, NS
from tests.support.dynamodb.usage_rows import bucket_with_hours
from tests.support.hours import hour_of
from tests.support.usage_totals import read_page
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage import day_row, hours
from zae_limiter.usage.report import UsageQuery

HOUR = NOW_MS // HOUR_MS
DAY, KEPT_DAYS = HOUR // 24, 30_000
HOURLY = UsageQuery.parse("hourly", None, None)
USER = BucketId(NS, "user", "api")
SUBJECTS = [("user", "api"), ("user", None), (None, "api"), (None, None)]


@pytest.fixture
def write(raw):
    """Send an update, as clients and the aggregator do."""

    def send(update):
        raw.boto.update_item(TableName=raw.table, **body_of(update))

    register(raw, ["api"])
    return send


async def used(ports, subject, limit=100):
    """Return the tokens of each hour, by hour after the first one."""
    page, key = await read_page(ports.usage, NS, *subject, HOURLY, limit)
    assert key is None
    return {int(each.window_start[11:13]): each.counters.get("rpm", 0) for each in page}


def stored(origin, hour, tokens, shard=0):
    return day_row.store(USER.shard(shard), origin, [hour_of(hour, {"rpm": tokens})], KEPT_DAYS)


@pytest.mark.fast("subject1", "subject3")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_an_announced_hour_is_read_from_its_bucket(ports, raw, write, subject):
    raw.put(bucket_with_hours(USER, "a", HOUR + 5, 7, finished=(HOUR + 2, 3)))
    write(day_row.announce(USER.shard(0), DAY, "a", KEPT_DAYS))
    assert await used(ports, subject) == {2: 3, 5: 7}


@pytest.mark.parametrize("subject", [("user", "api"), ("user", None)])
async def test_usage_of_an_entity_needs_no_announcement(ports, raw, write, subject):
    raw.put(bucket_with_hours(USER, "a", HOUR + 5, 7, finished=(HOUR + 2, 3)))
    write(stored("a", HOUR + 1, 2))
    write(stored("b", HOUR + 2, 10))
    assert await used(ports, subject) == {1: 2, 2: 13, 5: 7}


@pytest.mark.fast("subject1", "subject3")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_all_shards_are_added_up(ports, raw, write, subject):
    for number, shards in ((0, 4), (1, 2), (2, 4)):
        origin = f"x{number}"
        item = bucket_with_hours(USER, origin, HOUR + 1, 10 + number, shard=number, shards=shards)
        raw.put(item)
        write(day_row.announce(USER.shard(number), DAY, origin, KEPT_DAYS))
    write(stored("gone", HOUR + 1, 100, shard=3))
    assert await used(ports, subject) == {1: 133}


@pytest.mark.fast("subject1", "subject3")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_a_stored_hour_is_final(ports, raw, write, subject):
    """The bucket has turned since, or holds the same hour until it is cleared."""
    raw.put(bucket_with_hours(USER, "a", HOUR + 5, 7, finished=(HOUR + 2, 3)))
    write(stored("a", HOUR + 2, 3))
    write(day_row.announce(USER.shard(0), DAY, "a", KEPT_DAYS))
    assert await used(ports, subject) == {2: 3, 5: 7}


@pytest.mark.fast("subject0", "subject2")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_an_hour_of_another_life_of_the_bucket_is_not_counted(ports, raw, write, subject):
    raw.put(bucket_with_hours(USER, "new", HOUR + 2, 7))
    write(day_row.announce(USER.shard(0), DAY, "old", KEPT_DAYS))
    write(day_row.announce(USER.shard(0), DAY, "new", KEPT_DAYS))
    assert await used(ports, subject) == {2: 7}


@pytest.mark.fast("subject1", "subject3")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_an_announced_hour_without_a_bucket_is_nothing(ports, write, subject):
    write(day_row.announce(USER.shard(0), DAY, "a", KEPT_DAYS))
    assert await used(ports, subject) == {}


@pytest.mark.fast("subject1", "subject3")
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_a_late_credit_makes_an_hour_negative(ports, write, subject):
    write(day_row.late_credit(USER, "65f.1", hour_of(HOUR + 3, {"rpm": -5}, 0), KEPT_DAYS))
    assert await used(ports, subject) == {3: -5}


@pytest.mark.fast("subject1-1", "subject3-3")
@pytest.mark.parametrize("read", range(4))
@pytest.mark.parametrize("subject", SUBJECTS)
async def test_an_hour_that_is_stored_during_the_query_is_counted_once(
    proxied, proxy, raw, write, subject, read
):
    """Before one of the reads it is stored and cleared."""
    item = bucket_with_hours(USER, "a", HOUR + 5, 7, finished=(HOUR + 2, 3))
    raw.put(item)
    write(day_row.announce(USER.shard(0), DAY, "a", KEPT_DAYS))
    reads = iter(range(100))

    def end_hour(exchange):
        # Queries of an index come side by side: they are not counted.
        if "IndexName" not in exchange.body and next(reads) == read:
            write(stored("a", HOUR + 2, 3))
            write(hours.clear({name: item[name] for name in ("PK", "SK")}, hours.decode(item)))
        return False

    with proxy.fault("close", when=end_hour):
        assert await used(proxied, subject) == {2: 3, 5: 7}

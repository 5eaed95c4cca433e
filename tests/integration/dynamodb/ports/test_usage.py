"""Usage: the same windows as from all hours at once, read no further than a page needs."""

import random

import pytest

from tests.integration.dynamodb.ports.world import NOW_MS, NS
from tests.support.dynamodb.usage_rows import stored_rows
from tests.support.hours import hour_of
from tests.support.usage_totals import read_page, read_summary, summary_of
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import BucketHour
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.exceptions import ValidationError
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys, registries
from zae_limiter.items.stored.attributes import n, s
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.items.stored.usage import day_row
from zae_limiter.schema import PARTITIONS, partition_of
from zae_limiter.usage.report import UsageQuery, page_of

FIRST = NOW_MS // HOUR_MS
EVERYTHING = UsageQuery.parse(None, None, None)


def row(entity_id, resource, hour, amount=1):
    return BucketHour(entity_id, resource, hour_of(FIRST + hour, {"rpm": amount}, 1))


def store(raw, rows, namespace_id=NS):
    raw.put(*stored_rows(namespace_id, rows))
    register(raw, {each.resource for each in rows}, namespace_id)


def register(raw, resources, namespace_id=NS):
    """Add resources to those in use, as the first bucket of each does."""
    for resource in sorted(resources):
        update = registries.register_resource(namespace_id, resource)
        raw.boto.update_item(TableName=raw.table, **body_of(update))


def in_order(rows, entity_id=None, resource=None):
    found = [
        each
        for each in rows
        if entity_id in (None, each.entity_id) and resource in (None, each.resource)
    ]
    return sorted(found, key=lambda each: each.usage.hour)


def scattered(seed):
    """Hours of some entities on some resources, over a week."""
    dice = random.Random(seed)
    keys = {
        (dice.choice("abc"), dice.choice(["api", "api-2", "gpt", "gpt/4"]), dice.randrange(170))
        for _ in range(150)
    }
    return [row(*key, amount=dice.randrange(-5, 100)) for key in sorted(keys)]


async def test_a_day_is_one_flat_item(raw, ports):
    hours = [
        hour_of(FIRST + 13, {"tpm": -20, "rpm": 3}, 7),
        hour_of(FIRST + 14, {"rpm": 2}, 2, {"rpm": 1}, Tally(4, 1, 2, {"rpm": 90})),
        hour_of(FIRST + 15, {"rpm": 4}, 0),
    ]
    store(raw, [BucketHour("user", "gpt-4", each) for each in hours])
    key = day_row.row_key(ShardId(NS, "user", "gpt-4", 0), FIRST // 24)
    assert key == ("ns-1/ENTITY#user", "#USAGE#gpt-4#2026-01-01#0")
    assert raw.get(key) == {
        **key.attributes,
        "GSI2PK": s(f"ns-1/RESOURCE#gpt-4#{partition_of('user')}"),
        "GSI2SK": s("USAGE#2026-01-01#user"),
        "GSI4PK": s(f"ns-1/ALL#{partition_of('user')}"),
        "ttl": n(day_row.expires_s(FIRST // 24, 30_000)),
        "o_test": s("closed"),
        "13_test": s('["r7wwJ0S_",7,[3000,-20000]]'),
        "14_test": s('["6mn519MQ",2,[2000],[1000],4,1,2,{"rpm":90}]'),
        "15_test": s('["6mn519MQ",0,[4000]]'),
        "n_r7wwJ0S_": s('["rpm","tpm"]'),
        "n_6mn519MQ": s('["rpm"]'),
    }


@pytest.mark.fast("a-None-0", "b-gpt/4-0")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize(
    ("entity_id", "resource"),
    [
        *[("a", None), (None, "api"), ("b", "gpt/4"), (None, None)],
        pytest.param("nobody", None, marks=pytest.mark.slow),
    ],
)
async def test_pages_and_sums_are_those_of_all_hours(ports, raw, seed, entity_id, resource):
    rows = scattered(seed)
    store(raw, rows)
    store(raw, scattered(99), "another")
    wanted = in_order(rows, entity_id, resource)
    dice = random.Random(seed)
    for window_type in (None, "hourly", "daily", "monthly"):
        start, end = sorted(dice.sample(range(-10, 180), 2))
        windows = UsageQuery.parse(window_type, None, None).windows
        for query, limits in (
            (UsageQuery.parse(window_type, None, None), (40,)),
            (UsageQuery(windows, FIRST + start, FIRST + end), (7, 1000)),
        ):
            expected, _ = page_of(wanted, query, 10**6, None)
            for limit in limits:
                assert await all_pages(ports, entity_id, resource, query, limit) == expected
            found = await read_summary(ports.usage, NS, entity_id, resource, query)
            assert found == summary_of(wanted, query, entity_id, resource)


async def all_pages(ports, entity_id, resource, query, limit):
    found, key = [], None
    while True:
        page, key = await read_page(
            ports.usage, NS, entity_id, resource, query, limit=limit, next_key=key
        )
        assert len(page) <= limit
        found += page
        if key is None:
            return found


async def test_a_page_does_not_read_what_comes_after_it(proxied, proxy, raw):
    store(raw, [row("user", "api", hour) for hour in range(1200)])
    hourly = UsageQuery.parse("hourly", None, None)
    for who in (("user", "api"), ("user", None), (None, "api")):
        with proxy.measure() as seen:
            page, _ = await read_page(proxied.usage, NS, *who, hourly, limit=100)
        assert len(page) == 100
        assert sum(read.answer["ScannedCount"] for read in seen.of("Query")) < 30 + 25
        rows = [
            len(read.body["RequestItems"][raw.table]["Keys"]) for read in seen.of("BatchGetItem")
        ]
        assert sum(rows) < 20
        assert seen.calls <= (8 if who[0] else 10 + PARTITIONS)


async def test_a_page_of_days_reads_the_rows_of_its_entities(proxied, proxy, raw):
    """The index is sorted by day and entity: a page reads its own rows and a few more."""
    users, limit, later = 40, 5, 30
    hours = [*range(24), *range(24, 24 + later)]
    store(raw, [row(f"user-{number:03}", "api", hour) for number in range(users) for hour in hours])
    daily, key = UsageQuery.parse("daily", None, None), None
    for number in range(3):
        with proxy.measure() as seen:
            page, key = await read_page(
                proxied.usage, NS, None, "api", daily, limit=limit, next_key=key
            )
        first = number * limit
        assert [each.entity_id for each in page] == [
            f"user-{each:03}" for each in range(first, first + limit)
        ]
        assert [each.counters for each in page] == [{"rpm": 24}] * limit
        read = sum(
            len(answer["Responses"][raw.table])
            for answer in (each.answer for each in seen.of("BatchGetItem"))
        )
        assert read <= 2 * (limit + 2)
        keys_read = sum(each.answer["ScannedCount"] for each in seen.of("Query"))
        assert keys_read <= 3 * users, "some pages of the index have both days"


async def test_a_page_of_hours_of_many_entities_reads_few_rows(proxied, proxy, raw):
    """Of the others it reads the keys in the index."""
    rows = [row(f"user-{number:03}", "api", hour) for number in range(300) for hour in (0, 1)]
    store(raw, rows)
    hourly = UsageQuery.parse("hourly", None, None)
    with proxy.measure() as seen:
        page, key = await read_page(proxied.usage, NS, None, "api", hourly, limit=50)
    assert [each.entity_id for each in page] == [f"user-{number:03}" for number in range(50)]
    keys_read = [
        len(read.body["RequestItems"][raw.table]["Keys"]) for read in seen.of("BatchGetItem")
    ]
    assert sum(keys_read) <= 104
    with proxy.measure() as seen:
        page, _ = await read_page(proxied.usage, NS, None, "api", hourly, limit=50, next_key=key)
    assert page[0].entity_id == "user-050"
    assert sum(read.answer["ScannedCount"] for read in seen.of("Query")) == 300
    paged = await all_pages(proxied, None, "api", hourly, 50)
    assert paged == page_of(in_order(rows), hourly, 1000, None)[0]


async def test_a_span_of_time_is_a_range_of_keys(proxied, proxy, raw):
    store(raw, [row("user", "api", hour) for hour in range(1200)])
    span = UsageQuery.parse("hourly", "2026-02-01T00:00:00Z", "2026-02-01T05:00:00Z")
    for who in (("user", "api"), (None, "api")):
        with proxy.measure() as seen:
            page, key = await read_page(proxied.usage, NS, *who, span, limit=100)
            total = await read_summary(proxied.usage, NS, *who, span)
        assert (len(page), key, total.total) == (5, None, {"rpm": 5})
        assert sum(read.answer["ScannedCount"] for read in seen.of("Query")) == 2


async def test_a_later_page_starts_where_the_last_one_ended(proxied, proxy, raw):
    store(raw, [row("user", "api", hour) for hour in range(1200)])
    hourly = UsageQuery.parse("hourly", None, None)
    _, key = await read_page(proxied.usage, NS, "user", "api", hourly, limit=1000)
    with proxy.measure() as seen:
        page, _ = await read_page(proxied.usage, NS, "user", "api", hourly, limit=50, next_key=key)
    assert page[0].window_start == "2026-02-11T16:00:00Z"
    assert sum(read.answer["ScannedCount"] for read in seen.of("Query")) < 10


async def test_more_than_a_megabyte_is_added_up(ports, raw):
    many = {f"limit-{number:02}-{'x' * 40}": number + 1 for number in range(32)}
    rows = [BucketHour("user", "api", hour_of(FIRST + hour, many, 1)) for hour in range(800)]
    store(raw, rows)
    for who in (("user", "api"), (None, "api"), ("user", None)):
        total = await read_summary(ports.usage, NS, *who, UsageQuery.parse("hourly", None, None))
        assert total.snapshot_count == 800
        assert total.total == {name: 800 * amount for name, amount in many.items()}


async def test_a_namespace_that_nobody_has_used_has_no_usage(ports):
    assert await read_page(ports.usage, "unused", None, None, EVERYTHING, limit=10) == ([], None)
    assert (await read_summary(ports.usage, "unused", None, None, EVERYTHING)).snapshot_count == 0


async def test_buckets_in_the_same_index_are_not_usage(ports, raw):
    store(raw, [row("user", "api", 0)])
    raw.put(
        {**keys.bucket(NS, "user", "api").attributes, **bucket_item.index_keys(NS, "user", "api")}
    )
    page, _ = await read_page(ports.usage, NS, None, "api", EVERYTHING, limit=10)
    assert [each.window_type for each in page] == ["daily", "hourly", "monthly"]


@pytest.mark.parametrize(
    "times", [("0001-01-01", "9999-12-31T23:59:59Z"), (None, "9999-12-31"), ("9999-12-31", None)]
)
async def test_the_ends_of_time_can_be_asked_for(ports, raw, times):
    store(raw, [row("user", "api", 0)])
    for who in (("user", "api"), (None, "api"), ("user", None)):
        query = UsageQuery.parse(None, *times)
        page, _ = await read_page(ports.usage, NS, *who, query, limit=10)
        assert len(page) == (0 if times[0] == "9999-12-31" else 3)


@pytest.mark.fast("nonsense", "#")
@pytest.mark.parametrize("next_key", ["nonsense", "a#b#c#d", "#", 5])
async def test_a_key_that_no_page_has_returned_is_refused(ports, next_key):
    with pytest.raises(ValidationError) as caught:
        await read_page(ports.usage, NS, "user", "api", EVERYTHING, limit=10, next_key=next_key)
    assert caught.value.field == "next_key"

"""Items come and go; what they have counted stays."""

import pytest

from tests.integration.dynamodb.sharding.world import Before
from tests.support.dynamodb.world import USER
from zae_limiter import Limit

HUNDRED = Limit.per_minute("rpm", 100)


@pytest.fixture
async def client(world):
    client = await world.client()
    await world.limits(HUNDRED)
    await client.take(rpm=1)
    return client


async def test_a_new_shard_counts_on_its_own(world, client):
    world.next_hour()
    await world.split(0)
    old, new = world.items().values()
    assert old["o"] != new["o"]
    assert int(new["h"]["N"]) == world.hour
    assert new["op"]["S"].startswith("~")
    for _ in range(10):
        await client.take(rpm=5)
    assert world.counted() == {world.hour - 1: 1000, world.hour: 50_000}


async def test_split_and_merged_across_the_border(world, client):
    await world.split(0, 0, 1)
    for _ in range(8):
        await client.take(rpm=3)
    world.next_hour()
    for _ in range(8):
        await client.take(rpm=4)
    await world.merge_all()
    world.next_hour()
    await client.take(rpm=5)
    hour = world.hour
    assert world.counted() == {hour - 2: 25_000, hour - 1: 32_000, hour: 5000}
    assert world.events() == {hour - 2: 9, hour - 1: 8, hour: 1}


async def test_a_gather_turns_its_shards(world, client):
    await world.split(0, 0, 1)
    world.next_hour()
    await client.take(rpm=80)
    world.next_hour()
    await client.take(rpm=90)
    world.next_hour()
    await client.take(rpm=100)
    hour = world.hour
    assert world.counted() == {hour - 3: 1000, hour - 2: 80_000, hour - 1: 90_000, hour: 100_000}
    assert world.events() == {hour - i: 1 for i in range(4)}


async def test_deleting_an_entity_keeps_its_usage(world, client):
    world.next_hour()
    await client.take(rpm=2)
    await world.split(0)
    world.take_from(1, 4000)
    await client.repo.delete_entity(USER)
    assert world.items() == {}
    assert [list(marks.values()) for marks in world.marks().values()] == [["closed"]] * 2
    hour = world.hour
    assert world.counted() == {hour - 1: 1000, hour: 6000}
    assert world.events() == {hour - 1: 1, hour: 1}


async def test_a_charge_during_a_deletion_is_counted(world, client, proxy):
    admin = await world.open(proxy)
    Before(proxy, lambda: world.take_from(0, 7000), times=1)
    await admin.delete_entity(USER)
    assert world.items() == {}
    assert world.counted() == {world.hour: 8000}


async def test_a_bucket_that_is_created_again_counts_beside_the_earlier_one(world, client):
    await client.repo.delete_entity(USER)
    await world.limits(HUNDRED)
    await client.take(rpm=2)
    assert world.counted() == {world.hour: 3000}
    assert sorted(world.marks()[world.day, 0].values()) == ["closed", "open"]


async def test_a_merge_that_a_charge_precedes_is_planned_again(world, client):
    await world.split(0)
    planned = world.planned_merge(0, 1)
    world.update(1, "ADD wc :one", values={":one": {"N": "1"}})
    assert not world.transact(planned)


async def test_many_buckets_go_with_their_entity(world, client):
    for number in range(40):
        async with client.limiter.acquire(USER, f"r{number}", {"rpm": 1}, limits=[HUNDRED]):
            pass
    world.next_hour()
    await client.repo.delete_entity(USER)
    items = client.repo._context.engine.usage  # noqa: SLF001
    assert items is not None
    assert world.counted() == {world.hour - 1: 1000}


async def test_the_ttl_outlasts_the_usage_in_the_bucket(world):
    client = await world.client()
    await client.repo.set_system_defaults([HUNDRED])
    await client.take(rpm=1)
    day_ms = 86_400_000
    first = world.ttl_ms()
    assert first >= (world.day + 1) * day_ms + 97 * day_ms
    world.clock.advance(hours=24)
    await client.take(rpm=1)
    assert world.ttl_ms() == first  # not with every charge
    world.clock.advance(hours=24 * 7)
    await client.take(rpm=1)
    assert world.ttl_ms() >= (world.day + 1) * day_ms + 97 * day_ms
    world.clock.set(world.ttl_ms())
    world.expire()
    assert world.clock() - 90 * day_ms > 0

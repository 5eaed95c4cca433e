"""When a bucket is split by itself, and when it is merged again."""

import asyncio

import pytest

from tests.integration.dynamodb.sharding.world import EVEN
from zae_limiter import Limit

MANY = Limit.per_minute("rpm", 1_000_000)
STAY_S = 0.051  # after that a client turns to another shard
REST_S = 2.0  # after that it looks again whether a shard wants another shape
PER_S = 850  # writes that are too many for one item


@pytest.fixture
def stack(stack_without_usage):
    """Buckets expire as soon as they may."""
    return stack_without_usage


async def pressed(world, *clients, per_s=PER_S, seconds=1):
    """Each client writes by itself, so that none of them shares a write."""
    for _ in range(seconds):
        for _ in range(per_s // len(clients) + 1):
            await asyncio.gather(*(client.take(rpm=1) for client in clients))
        world.clock.advance(ms=1000)
        for client in clients:
            await client.take(rpm=1)


async def quiet(world, client, *, every_s, minutes, pause_s=STAY_S):
    """Until there is one item again; how many minutes that took."""
    begun_ms = world.clock()
    while world.clock() - begun_ms < minutes * 60_000:
        world.clock.advance(seconds=every_s)
        await asyncio.sleep(pause_s)
        await client.take(rpm=1)
        if len(world.items()) == 1:
            return (world.clock() - begun_ms) / 60_000
    return None


# --- splitting


async def test_a_bucket_that_is_written_to_all_the_time_is_split(either):
    await either.limits(MANY)
    await either.use(rpm=500_000)
    clients = [await either.client() for _ in range(3)]
    await pressed(either, *clients)
    assert either.shards() == {0: 2, 1: 2}
    assert sum([(await stats(client)).splits for client in clients]) == 1


async def test_fewer_writes_do_not_split_it(world):
    await world.limits(MANY)
    client = await world.client()
    await pressed(world, client, per_s=780)
    assert world.shards() == {0: 1}


async def test_writes_that_are_shared_do_not_split_it(world):
    """Thousands of acquires, but few writes."""
    await world.limits(MANY)
    client = await world.client()
    for _ in range(20):
        await asyncio.gather(*(client.take(rpm=1) for _ in range(100)))
    world.clock.advance(ms=1000)
    await client.take(rpm=1)
    assert world.shards() == {0: 1}
    assert world.spent() == 2_001_000


async def test_a_store_that_has_no_throughput_left_is_a_reason_to_split(either, proxy):
    await either.limits(MANY)
    client = await either.client(proxy)
    await pressed(either, client, per_s=20)
    with proxy.fault("throttle", operation="UpdateItem", times=1) as fault:
        await client.take(rpm=1)
    assert fault.used == 1
    assert either.shards() == {0: 2, 1: 2}
    assert (await stats(client)).splits == 1


async def test_a_bucket_that_is_hardly_used_is_not_split_for_that(world, proxy):
    """The store is short of something else."""
    await world.limits(MANY)
    client = await world.client(proxy)
    await pressed(world, client, per_s=3)
    with proxy.fault("throttle", operation="UpdateItem", times=1):
        await client.take(rpm=1)
    assert world.shards() == {0: 1}


@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.slow), 2])
async def test_there_are_never_more_shards_than_allowed(world, proxy, most):
    await world.limits(MANY)
    await world.use(rpm=0)
    await world.split(*EVEN[most])
    client = await world.client(proxy, max_shards=most)
    for _ in range(2):
        for _ in range(4 * most):
            for _ in range(15):
                await client.take(rpm=1)
            await asyncio.sleep(STAY_S)
        world.clock.advance(ms=1000)
        with proxy.fault("throttle", operation="UpdateItem", times=4 * most):
            for _ in range(4 * most):
                await client.take(rpm=1)
                await asyncio.sleep(STAY_S)
    assert len(world.shards()) == most
    assert (await stats(client)).splits == 0


async def test_a_shard_is_split_once_more(world, proxy):
    await world.limits(MANY)
    await world.use(rpm=0)
    await world.split(0)
    client = await world.client(proxy)
    for _ in range(8):
        for _ in range(15):
            await client.take(rpm=1)
        await asyncio.sleep(STAY_S)
    await asyncio.sleep(REST_S)
    world.clock.advance(ms=1000)
    for _ in range(8):
        with proxy.fault("throttle", operation="UpdateItem", times=1):
            await client.take(rpm=1)
        await asyncio.sleep(STAY_S)
    assert 3 <= len(world.shards()) <= 4


@pytest.mark.parametrize("capacity", [1, 3])
async def test_a_small_capacity_is_never_split(world, proxy, capacity):
    await world.limits(Limit.custom("rpm", capacity, 1000, 1))
    client = await world.client(proxy)
    for _ in range(30):
        await client.take(rpm=1)
        world.clock.advance(ms=34)
    with proxy.fault("throttle", operation="UpdateItem", times=1):
        await client.take(rpm=1)
    world.clock.advance(ms=1000)
    await client.take(rpm=1)
    assert world.shards() == {0: 1}


async def test_charges_that_are_large_for_the_capacity_keep_a_bucket_whole(world, proxy):
    await world.limits(Limit.custom("rpm", 1000, 1_000_000, 1))
    client = await world.client(proxy)
    for _ in range(30):
        await client.take(rpm=300)
        world.clock.advance(ms=34)
    with proxy.fault("throttle", operation="UpdateItem", times=1):
        await client.take(rpm=300)
    assert world.shards() == {0: 1}


# --- merging


@pytest.mark.parametrize(("n", "every_s"), [(2, 25), pytest.param(4, 15, marks=pytest.mark.slow)])
async def test_a_quiet_bucket_is_one_item_again(world, n, every_s):
    await world.limits(MANY)
    await world.use(rpm=500_000)
    await world.split(*EVEN[n])
    client = await world.client(config_cache_ttl=10**6)
    minutes = await quiet(world, client, every_s=every_s, minutes=60)
    assert minutes is not None
    assert minutes >= 10  # how much more depends on pauses by the real clock
    assert (await stats(client)).merges == n - 1


async def test_a_bucket_is_merged_although_it_is_asked_for_seldom(world):
    """Once in a few minutes: nobody needs two items for that."""
    await world.limits(MANY)
    await world.use(rpm=500_000)
    await world.split(0)
    client = await world.client(config_cache_ttl=10**6)
    assert await quiet(world, client, every_s=150, minutes=90, pause_s=0.3) is not None


async def test_a_busy_bucket_is_not_merged(world):
    await world.limits(MANY)
    await world.use(rpm=0)
    await world.split(0)
    client = await world.client(config_cache_ttl=10**6)
    for _ in range(12 * 60 // 5):
        for item in world.items().values():
            item["wc"] = {"N": str(int(item["wc"]["N"]) + 5 * 250)}  # by others
            world.put(item)
        world.clock.advance(seconds=5)
        await client.take(rpm=1)
        await asyncio.sleep(0.001)
    assert world.shards() == {0: 2, 1: 2}


async def test_what_is_merged_is_forgotten_in_the_end_where_defaults_apply(world):
    await world.admin.set_system_defaults([MANY])
    client = await world.client(config_cache_ttl=10**6)
    await client.take(rpm=500_000)
    assert "ttl" in world.items()[0]
    await world.split(0)
    assert not any("ttl" in item for item in world.items().values())
    assert await quiet(world, client, every_s=20, minutes=30)
    await client.take(rpm=1)
    ttl_ms = int(world.items()[0]["ttl"]["N"]) * 1000
    assert world.clock() + 60_000 <= ttl_ms <= world.clock() + 8 * 60_000


async def test_what_is_merged_is_never_forgotten_under_limits_of_its_own(world):
    await world.limits(MANY)
    client = await world.client(config_cache_ttl=10**6)
    await client.take(rpm=500_000)
    await world.split(0)
    assert await quiet(world, client, every_s=20, minutes=30)
    await client.take(rpm=1)
    assert "ttl" not in world.items()[0]


async def stats(client):
    found = client.repo.get_stats()
    return found if not asyncio.iscoroutine(found) else await found

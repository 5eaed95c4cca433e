"""Splits and merges that several want at once, and those that nobody does."""

import pytest

from tests.integration.dynamodb.sharding.world import Before, by_another, rpm
from tests.support.dynamodb.world import USER, together
from zae_limiter.admission.shards.tree import WHOLE, Shard

HALVES = {0: 2, 1: 2}


async def test_a_split_that_another_client_made_first_is_not_repeated(world, proxy):
    client = await world.split_bucket(rpm(1000), n=1, proxy=proxy)
    other = await world.client()
    meanwhile = Before(proxy, by_another(lambda: other.split(WHOLE)), times=1)
    assert not await client.split(WHOLE)
    assert meanwhile.count == 1
    assert world.shards() == HALVES
    assert world.level() == 999_000


async def test_many_clients_that_find_a_bucket_busy_split_it_once(world):
    first = await world.split_bucket(rpm(1_000_000), n=1)
    clients = [first, *await world.clients(7)]
    for client in clients:
        await client.take(rpm=1)
    world.count_writes(0, 3000)
    world.clock.advance(seconds=1)
    assert await together(*(client.take(rpm=1) for client in clients)) == [None] * 8
    assert world.shards() == HALVES


async def test_a_merge_that_another_client_made_first_merges_no_other_pair(world, proxy):
    client = await world.split_bucket(rpm(1000), n=2, proxy=proxy)
    assert await client.split(Shard(0, 2))
    other = await world.client()
    meanwhile = Before(proxy, by_another(lambda: other.merge(Shard(0, 4))), times=1)
    assert not await client.merge(Shard(0, 4))
    assert meanwhile.count == 1
    assert world.shards() == HALVES
    assert world.level() == 999_000


async def test_many_merges_of_the_same_pair_at_once_merge_no_other(world):
    first = await world.split_bucket(rpm(1000), n=2)
    assert await first.split(Shard(0, 2))
    clients = [first, *await world.clients(3)]
    merged = await together(*(client.merge(Shard(0, 4)) for client in clients))
    assert sorted(merged) == [False, False, False, True]
    assert world.shards() == HALVES


async def test_a_bucket_that_is_split_while_it_is_deleted_leaves_nothing_behind_to_be_taken(
    world, proxy
):
    """Who comes later finds one full bucket, whatever it knows of the old one."""
    deleting, (splitting, newcomer) = await world.client(proxy), await world.clients(2)
    await deleting.repo.create_entity(USER)
    await deleting.repo.set_system_defaults([rpm(100)])
    await splitting.take(rpm=1)
    meanwhile = Before(proxy, by_another(lambda: splitting.split(WHOLE)), times=1)
    await deleting.repo.delete_entity(USER)
    assert meanwhile.count == 1
    granted = [await client.granted(rpm=10) for client in (newcomer, splitting) for _ in range(11)]
    assert sum(granted) == 10


@pytest.mark.parametrize(
    "now_in",
    [
        1,
        2,
        4,
    ],
)
async def test_a_bucket_made_anew_by_a_client_with_a_slow_clock_is_found_in_its_new_shape(
    world, now_in
):
    """Its generations are lower than those that are known of the old one, which was in halves."""
    client, behind = await world.split_bucket(rpm(100), n=2), await world.client()
    await client.repo.create_entity(USER)
    await client.take(rpm=1)
    world.clock.advance(minutes=-1)
    await behind.repo.delete_entity(USER)
    await behind.take(rpm=1)
    await behind.split_into(now_in)
    world.clock.advance(minutes=1)
    await client.take(rpm=60)
    assert world.level() == 40_000


async def test_shards_are_merged_by_a_client_that_calls_every_other_minute(world):
    """What it knows of a shard's sibling is old each time; that does not keep it from merging."""
    client = await world.split_bucket(rpm(1000), n=8)
    for _ in range(200):
        world.clock.advance(seconds=90)
        await client.take(rpm=1)
    assert len(world.shards()) < 8

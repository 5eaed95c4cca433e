"""Limits that are renamed again and again leave a bucket that can still be written to.

A limit that is not in force any more leaves the bucket once it is full, and once the hour in which
it was used is over: then nothing is lost with it.
"""

import pytest

from tests.integration.dynamodb.sharding.world import rpm
from tests.support.dynamodb.stored import limits_of
from tests.support.dynamodb.world import PARENT, USER, under_way
from zae_limiter import Limit, ValidationError
from zae_limiter.admission.rebase import MAX_STORED
from zae_limiter.admission.shards.tree import Shard

RENAMES = 70
PAUSE_S = 120  # a limit per minute is full again after it
OLD, NEW = Limit.per_minute("old", 10), Limit.per_minute("new", 10)
OTHER = Limit.per_minute("other", 10)


@pytest.fixture
async def client(world):
    """A client of a child that cascades, so that the parent counts usage through children."""
    client = await world.client()
    await client.repo.create_entity(PARENT)
    await client.repo.create_entity(USER, parent_id=PARENT, cascade=True)
    return client


async def use(client, *limits, **amounts):
    """Put these limits in force, and use them."""
    await client.repo.set_system_defaults(limits)
    await client.take(**amounts)


def held(world, entity_id=PARENT):
    return set(limits_of(world.item(entity_id)))


async def test_a_bucket_outlives_many_renamed_limits(world, client):
    names = [f"limit-{number}" for number in range(RENAMES)]
    for name in names:
        await use(client, Limit.per_minute(name, 10), **{name: 1})
        world.clock.advance(seconds=PAUSE_S)
    for _ in range(3):
        world.next_hour()
        await client.take(**{names[-1]: 1})
    expected = {**dict.fromkeys(names, 1000), names[-1]: 4000}
    for entity_id in (USER, PARENT):
        used = {name: sum(world.counted(name, entity_id).values()) for name in names}
        assert used == expected
        assert len(held(world, entity_id)) <= MAX_STORED
    through = {name: sum(world.through(name, PARENT).values()) for name in names}
    assert through == expected


async def test_a_bucket_with_all_limits_that_it_may_hold_turns_its_hour(world, client):
    """None of them fills up, as the clock stands still: they are all there when the hour ends."""
    names = [f"limit-{number}" for number in range(MAX_STORED)]
    for name in names:
        await use(client, Limit.per_day(name, 10), **{name: 9})
    assert held(world) == held(world, USER) == set(names)
    for amount in (1, 0, 0):
        world.next_hour()
        await client.take(**{names[-1]: amount})
    for entity_id in (USER, PARENT):
        assert sum(world.counted(names[0], entity_id).values()) == 9000
        assert sum(world.counted(names[-1], entity_id).values()) == 10_000
    await client.repo.set_system_defaults([NEW])
    with pytest.raises(ValidationError, match=str(MAX_STORED)):
        await client.take(new=1)
    world.clock.advance(hours=24)
    await client.take(new=1)  # all others have filled up, and some of them leave
    assert "new" in held(world)
    assert len(held(world)) < MAX_STORED


async def test_a_renamed_limit_that_is_not_full_comes_back_with_its_level(world, client):
    await use(client, OLD, old=7)
    await use(client, NEW, new=1)
    world.clock.advance(seconds=6)
    await use(client, OTHER, other=1)
    assert held(world) == {"old", "new", "other"}
    await use(client, OLD)
    assert world.level("old", PARENT) == world.level("old") == 4000


async def test_a_renamed_limit_stays_for_its_hour_and_leaves_in_the_next(world, client):
    await use(client, OLD, old=7)
    first = world.hour
    world.clock.advance(seconds=PAUSE_S)
    await use(client, NEW, new=1)
    assert held(world) == {"old", "new"}  # it is full, but has counted in this hour
    world.next_hour()
    await client.take(new=1)
    await use(client, OTHER, other=1)
    assert held(world) == {"other", "new"}
    assert world.counted("old", PARENT) == world.through("old", PARENT) == {first: 7000}
    await use(client, OLD, old=10)  # full, as it was
    assert world.level("old", PARENT) == 0


async def test_a_call_with_limits_of_its_own_leaves_configured_limits_alone(world, client):
    await use(client, OLD, old=1)
    world.next_hour(ms=60_000)
    await client.take()
    await client.take(new=1, limits=[NEW])
    assert held(world, USER) == {"old", "new"}


@pytest.mark.parametrize("amount", [3, -3], ids=["debt", "credit"])
async def test_a_limit_is_not_dropped_while_it_is_settled(world, client, proxy, amount):
    """The settlement of an old lease reaches the bucket between the plan and the write."""
    await use(client, OLD, NEW)
    old = client.acquire(old=5)
    await (await old.__aenter__()).adjust(old=amount)
    world.next_hour(ms=60_000)
    await client.take()
    slow = await world.client(proxy)
    await slow.repo.set_system_defaults([NEW, OTHER])
    async with under_way(proxy, slow.take(other=1)) as late:
        await old.__aexit__(None, None, None)
    assert late.exception() is None
    assert world.counted("old") == {world.hour - 1: 5000, world.hour: amount * 1000}
    if amount > 0:
        assert world.level("old") == 10_000 - 3000


async def test_shards_of_which_one_has_dropped_a_limit_are_merged_all_the_same(world):
    client = await world.split_bucket(rpm(100), OLD, n=2)
    world.set_level(1, 1000, "old")
    await client.repo.set_system_defaults([rpm(100), NEW])
    await client.take(rpm=80)  # of both shards
    items = world.items()
    assert set(limits_of(items[0])) == {"rpm", "new"}
    assert set(limits_of(items[1])) == {"rpm", "new", "old"}
    assert await client.merge(Shard(0, 2))
    assert world.shards() == {0: 1}
    assert world.level("old") == 6000

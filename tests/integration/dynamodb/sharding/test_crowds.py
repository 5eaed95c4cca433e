"""Many at once on a bucket of several items: they get what there is, and no more."""

import asyncio
import random

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import API, PARENT, USER, together
from zae_limiter import Limit, RateLimitExceeded

THOUSAND = Limit.per_minute("rpm", 1000)


async def sharded(world, limit=HUNDRED, n=8, entity_id=USER):
    await world.limits(limit, entity_id=entity_id)
    await world.use(entity_id, rpm=0)
    await world.split(*EVEN[n], entity_id=entity_id)


@pytest.mark.each_value_once
@pytest.mark.parametrize("processes", [1, 3])
async def test_exactly_as_many_as_there_are_tokens(either, processes):
    await sharded(either)
    clients = [await either.client() for _ in range(processes)]
    outcomes = await together(*(clients[i % processes].take(rpm=1) for i in range(150)))
    refused = [each for each in outcomes if each is not None]
    assert all(isinstance(each, RateLimitExceeded) for each in refused)
    assert either.level() == 1000 * (len(refused) - 50)
    while await clients[0].granted(rpm=1):
        refused.pop()
    assert len(refused) == 50
    assert either.level() == 0


@pytest.mark.each_value_once
@pytest.mark.parametrize("seed", range(3))
async def test_amounts_of_all_sizes(either, seed):
    """Nobody gets what is not there; what is left in the end is too little for anybody."""
    await sharded(either, THOUSAND)
    clients, chance = [await either.client() for _ in range(2)], random.Random(seed)
    amounts = [chance.choice((1, 5, 30, 130, 300)) for _ in range(60)]
    outcomes = await together(
        *(clients[i % 2].take(rpm=amount) for i, amount in enumerate(amounts))
    )
    taken = sum(amount for amount, each in zip(amounts, outcomes, strict=True) if each is None)
    assert {type(each) for each in outcomes} <= {type(None), RateLimitExceeded}
    assert either.level() == 1_000_000 - 1000 * taken
    assert taken >= 500
    await clients[0].take(rpm=1000 - taken)
    assert either.level() == 0


async def test_leases_that_come_and_go_leave_a_full_bucket(either):
    await sharded(either, THOUSAND)
    clients, chance = [await either.client() for _ in range(2)], random.Random(7)

    async def lease(client, amount, how):
        async with client.acquire(rpm=amount) as lease:
            await asyncio.sleep(chance.random() * 0.01)
            if how == "release":
                await lease.release(rpm=amount)
            else:
                await lease.adjust(rpm=-amount)

    for _ in range(4):
        await together(
            *(
                lease(
                    clients[i % 2], chance.choice((1, 20, 150)), ("release", "adjust")[i // 2 % 2]
                )
                for i in range(24)
            )
        )
    assert either.level() == 1_000_000


# --- cascades


@pytest.fixture
async def family(either):
    await either.admin.create_entity(PARENT)
    await either.admin.create_entity(USER, parent_id=PARENT, cascade=True)
    await either.limits(HUNDRED)
    await either.limits(Limit.per_minute("rpm", 50), entity_id=PARENT)
    await either.use(rpm=0)
    for entity_id in (USER, PARENT):
        await either.split(*EVEN[4], entity_id=entity_id)
    return either


async def test_child_and_parent_are_charged(family):
    client = await family.client()
    for amount in (1, 30, 10):
        await client.take(rpm=amount)
    assert (family.level(), family.level(entity_id=PARENT)) == (59_000, 9_000)


@pytest.mark.each_value_once
@pytest.mark.parametrize("known", [False, True])
async def test_what_the_parent_refuses_the_child_gets_back(family, known):
    client = await family.client()
    if known:
        await client.take(rpm=0)
    family.set_levels(dict.fromkeys(range(4), 2000), entity_id=PARENT)
    family.clock.advance(ms=1)
    for amount in (9, 20, 60):
        refusal = await client.refusal(rpm=amount)
        assert refusal.retry_after_seconds > 0
    assert family.level() == 100_000
    assert family.level(entity_id=PARENT) // 1000 == 8
    await client.take(rpm=8)
    assert family.level() // 1000 == 92


async def test_a_cascade_that_fails_gives_both_back(family):
    client = await family.client()
    with pytest.raises(ZeroDivisionError):
        async with client.acquire(rpm=45):
            raise ZeroDivisionError
    assert (family.level(), family.level(entity_id=PARENT)) == (100_000, 50_000)


async def test_limits_of_a_call_live_beside_the_others_in_every_shard(either):
    await sharded(either, n=4)
    client, own = await either.client(), [Limit.per_minute("rpm", 40)]
    await client.take(rpm=30, limits=own)
    await client.refusal(rpm=11, limits=own)
    await client.take(rpm=100)
    await client.take(rpm=10, limits=own)
    await client.refusal(rpm=1, limits=own)
    await client.refusal(rpm=1)


async def test_limits_that_change_reach_every_shard(either):
    await sharded(either)
    either.set_levels(dict.fromkeys(range(8), 6_000))
    client = await either.client(config_cache_ttl=1)
    await client.take(rpm=0)
    await either.limits(Limit.per_minute("rpm", 40))
    either.clock.advance(ms=1001)
    assert await client.limiter.available(USER, API) == {"rpm": 40}
    await client.take(rpm=40)
    await client.refusal(rpm=1)
    await either.limits(Limit.per_minute("rpm", 1000))
    either.clock.advance(ms=1001)
    found = await client.limiter.available(USER, API)
    assert found["rpm"] <= 17
    await client.take(rpm=found["rpm"])
    await client.refusal(rpm=1)


async def test_what_is_shown_after_a_change_can_be_had(either):
    """Half of the shards are empty, the others full of what they no longer can hold."""
    await sharded(either)
    either.set_levels(dict.fromkeys(range(4), 0))
    await either.limits(Limit.per_minute("rpm", 40))
    client = await either.client()
    found = await client.limiter.available(USER, API)
    await client.take(rpm=found["rpm"])

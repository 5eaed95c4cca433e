"""What is given back to a bucket whose shards may be full."""

import asyncio

import pytest

from tests.integration.dynamodb.sharding.world import rpm
from tests.support.dynamodb import stored
from tests.support.dynamodb.world import (
    API,
    PARENT,
    USER,
    Failure,
    failing,
    seen,
    together,
)
from zae_limiter import Limit, RateLimitExceeded


async def test_giving_back_to_a_full_bucket_takes_one_look_at_its_shards(world, proxy):
    client = await world.split_bucket(Limit.per_second("rps", 1600), n=16, proxy=proxy)
    world.clock.advance(seconds=2)
    await client.take(rps=1)
    for _ in range(2):
        with proxy.measure() as seen:
            async with client.acquire(rps=10) as lease:
                world.clock.advance(seconds=2)
                await lease.adjust(rps=-8)
        assert seen.operations == {"UpdateItem": 2, "BatchGetItem": 1}


async def test_many_credits_to_a_full_bucket_at_once_share_their_reads(world, proxy):
    client = await world.split_bucket(Limit.per_second("rps", 16_000), n=16, proxy=proxy)
    world.clock.advance(seconds=2)
    before = world.spent("rps")
    together_with_me = asyncio.Barrier(51)

    async def fail():
        with failing():
            async with client.acquire(rps=10):
                await together_with_me.wait()  # all have been granted
                await together_with_me.wait()  # and the bucket is full again
                raise Failure

    blocks = [asyncio.ensure_future(fail()) for _ in range(50)]
    await together_with_me.wait()
    world.clock.advance(seconds=2)
    with proxy.measure() as seen:
        await together_with_me.wait()
        assert await together(*blocks) == [None] * 50
    assert world.spent("rps") == before
    assert len(seen.of("BatchGetItem")) <= 12


async def test_if_one_shard_does_not_get_its_part_of_a_credit_the_others_still_get_theirs(
    world, proxy
):
    """What the first shard can not hold is for three others; the store fails at one of them."""
    client = await world.split_bucket(rpm(400), n=4, proxy=proxy)
    three_quarters = dict.fromkeys(range(4), 75_000)
    world.leave(three_quarters)
    with failing():
        async with client.acquire(rpm=60):
            world.leave(three_quarters)
            before = world.level()
            broken = proxy.fault("error_before", operation="UpdateItem", skip=1, times=1)
            raise Failure
    assert broken.used == 1
    spilled = 60_000 - 25_000
    assert world.level() - before >= 60_000 - -(-spilled // 3)


async def test_giving_back_a_charge_of_nothing_spoils_nothing_for_others(world, proxy):
    """The child refuses, so a charge of nothing is given back to the parent, along with others."""
    client = await world.client(proxy)
    await client.repo.create_entity(PARENT)
    await client.repo.create_entity(USER, parent_id=PARENT, cascade=True)
    await client.repo.set_limits(USER, [rpm(10)], API)
    await client.repo.set_limits(PARENT, [Limit.per_minute("tpm", 1000)], API)
    await client.take(PARENT, tpm=1)
    await client.split_into(2, entity_id=PARENT)
    proxy.link.request_ms, proxy.link.jitter_ms = 3, 4

    async def fail():
        with failing():
            async with client.acquire(PARENT, tpm=1):
                raise Failure

    async def again(work):
        found = []
        for _ in range(8):
            world.clock.advance(seconds=1)
            found += await together(work())
        return found

    workers = [again(lambda: client.take(rpm=4)) for _ in range(10)]
    workers += [again(fail) for _ in range(20)]
    found = [each for some in await together(*workers) for each in some]
    assert {type(each) for each in found} <= {type(None), RateLimitExceeded}
    assert any(found), "some were refused"


@pytest.mark.parametrize("nth", [0, 1], ids=["its own shard", "one of the others"])
async def test_what_another_client_gives_too_much_is_not_handed_on_as_ones_own(world, proxy, nth):
    """The answer to a credit is lost, and its shard is overfull before the credit is found."""
    client = await world.split_bucket(rpm(400), n=4, proxy=proxy)
    world.leave(dict.fromkeys(range(4), 75_000))

    async def fail():
        with failing():
            async with client.acquire(rpm=60):
                world.leave(dict.fromkeys(range(4), 75_000 if nth else 40_000))
                begun.set_result(world.balance())
                await goes_on.wait()
                raise Failure

    begun, goes_on = asyncio.get_running_loop().create_future(), asyncio.Event()
    task = asyncio.ensure_future(fail())
    before = await begun
    with (
        proxy.measure() as measured,
        proxy.fault("lose_answer", operation="UpdateItem", skip=nth, times=1),
        proxy.fault("hold", operation="GetItem") as held,
    ):
        goes_on.set()
        await seen(measured, "GetItem")
        number = stored.number_of(measured.of("UpdateItem")[nth].body["Key"])
        world.credit(number, 60_000)
        held.remove()
        await task
    handed_on = 35_000 if nth else 0  # beyond the first shard's capacity, before the other's credit
    assert world.balance() - before == 60_000 + handed_on + 60_000

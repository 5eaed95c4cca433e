"""Debts that one shard can not cover."""

import asyncio

from tests.integration.dynamodb.sharding.world import Before, by_another, rpm
from tests.support.dynamodb.stored import EPOCH_MS
from tests.support.dynamodb.world import API, USER, together
from zae_limiter import Limit
from zae_limiter.admission.shards.tree import Shard


async def test_a_debt_that_another_client_has_repaid_meanwhile_is_not_repaid_twice(world, proxy):
    """A second repayment would lift the shard above its share, and what is above is lost.

    Both believe that only the small shard 3 has tokens, so both owe there; the other one owes a
    little more and repays all of it before the first one's repayment arrives.
    """
    client, other = await world.split_bucket(rpm(400), n=2, proxy=proxy), await world.client()
    for shard in (Shard(1, 2), Shard(3, 4)):
        assert await client.split(shard)
    world.leave({0: -200_000, 1: -100_000, 3: 50_000, 7: -100_000})
    for each in (client, other):
        await each.refusal(rpm=60)
    admitted, ends = asyncio.Event(), asyncio.Event()

    async def owe_a_little():
        async with other.acquire(rpm=0) as lease:
            await lease.adjust(rpm=1)
            admitted.set()
            await ends.wait()

    async def repay():
        ends.set()
        await second

    async with client.acquire(rpm=0) as lease:
        second = asyncio.ensure_future(owe_a_little())
        await admitted.wait()
        await lease.adjust(rpm=110)
        world.leave({0: 200_000, 1: 100_000, 7: 50_000})
        meanwhile = Before(proxy, by_another(repay), times=1)
    assert meanwhile.count == 1
    assert world.levels() == {0: 139_000, 1: 100_000, 3: 0, 7: 50_000}


async def _owe_at_once(clients, *, apart_ms=0):
    """All have been admitted when the first one's block ends with a debt of 200."""
    admitted = asyncio.Barrier(len(clients))

    async def owe(client, after_ms):
        async with client.acquire(rpm=0) as lease:
            await lease.adjust(rpm=200)
            await admitted.wait()
            await asyncio.sleep(after_ms / 1000)

    debts = [owe(client, apart_ms * number) for number, client in enumerate(clients)]
    assert await together(*debts) == [None] * len(clients)


async def test_debts_of_many_processes_at_once_cost_exactly_what_they_are(world):
    clients = [await world.split_bucket(rpm(400), n=4), *await world.clients(7)]
    await _owe_at_once(clients)
    assert world.spent() == 1_000 + 8 * 200_000
    assert world.level() == 400_000 - world.spent()


async def test_debts_of_one_process_one_shortly_after_the_other_cost_exactly_what_they_are(
    world, proxy
):
    """Each comes while those before it are on their way."""
    client = await world.split_bucket(rpm(400), n=4, proxy=proxy)
    proxy.link.request_ms = proxy.link.answer_ms = 5
    await _owe_at_once([client] * 8, apart_ms=3)
    assert world.spent() == 1_000 + 8 * 200_000
    assert world.level() == 400_000 - world.spent()


async def test_a_debt_that_comes_while_shards_are_merged_is_remembered_until_it_is_repaid(
    world, proxy
):
    client = await world.split_bucket(rpm(100), n=2, proxy=proxy)
    Before(proxy, lambda: world.take_from(0, 5_000_000), times=1)
    assert await client.merge(Shard(0, 2))
    item = world.items()[0]
    assert world.shards() == {0: 1}
    missing = 100_000 - int(item["t_rpm"]["N"])
    full_at_ms = EPOCH_MS + missing * 60_000 // 100_000
    assert full_at_ms - world.clock() > 49 * 60_000
    assert "ttl" not in item or int(item["ttl"]["N"]) * 1000 >= full_at_ms


async def test_a_debt_of_a_quota_is_charged_whichever_shard_has_admitted_the_call(world):
    """The first shard has all of a quota, and the call that owes it names only the rate."""
    client = await world.split_bucket(rpm(400), Limit.quota("tokens", 1000, per="day"), n=4)
    for _ in range(10):
        async with client.acquire(rpm=1) as lease:
            await lease.settle(tokens=3, now=True)
            await lease.adjust(tokens=4)
        world.clock.advance(ms=100)  # to another shard
    state = await client.repo.get_bucket(USER, API, "tokens")
    assert (state.available, state.used, state.held) == (930, 70, 0)


async def test_a_soft_quota_of_a_split_bucket_is_charged_in_full(world):
    soft = Limit.quota("tokens", 10, per="day", soft=True)
    client = await world.split_bucket(rpm(400), soft, n=4)
    for _ in range(10):
        async with client.acquire(tokens=3):
            pass
        world.clock.advance(ms=100)  # to another shard
    state = await client.repo.get_bucket(USER, API, "tokens")
    assert (state.available, state.used) == (-20, 30)

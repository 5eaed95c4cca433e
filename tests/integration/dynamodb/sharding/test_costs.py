"""What a bucket of several items costs, counted at the socket as AWS bills it."""

import asyncio

import pytest

from tests.integration.dynamodb.capacity.documented import Cost
from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import Failure
from zae_limiter.items.sharding.affinity import STAY_S

SLOW_IN_SYNC_TREE = True  # the same calls


@pytest.fixture
def shards():
    return 4


@pytest.fixture
async def client(either, proxy, shards):
    """It knows limits and shards, of which it has just seen one."""
    await either.limits(HUNDRED)
    await either.use(rpm=20)
    await either.split(*EVEN[shards])
    client = await either.client(proxy, rejection_cache_ttl=1)
    await client.take(rpm=1)
    return client


async def cost(proxy, work):
    with proxy.measure() as seen:
        await work
    return Cost.of(seen)


async def know_all(client, shards):
    """Let a newcomer get to know the shards, one look at a time."""
    for _ in EVEN[shards]:
        await asyncio.sleep(1.1 * STAY_S)
        await client.take(rpm=1)


async def test_a_warm_acquire_costs_what_it_costs_with_one_item(client, either, proxy, shards):
    await know_all(client, shards)
    for _ in range(20):
        assert await cost(proxy, client.take(rpm=1)) == Cost(1, 1, 0)
        either.clock.advance(ms=600)


async def test_settlements_that_fit_into_one_shard(client, either, proxy, shards):
    await know_all(client, shards)

    async def adjusted(amount):
        async with client.acquire(rpm=2) as lease:
            await lease.adjust(rpm=amount)

    assert await cost(proxy, adjusted(-1)) == Cost(2, 2, 0)
    assert await cost(proxy, adjusted(1)) == Cost(2, 2, 0)


async def test_a_rejection_that_was_to_be_expected(client, either, proxy):
    await client.refusal(rpm=90)
    for _ in range(3):
        assert await cost(proxy, client.refusal(rpm=90)) == Cost(0, 0, 0)
        either.clock.advance(ms=300)
    assert await cost(proxy, client.refusal(rpm=95)) == Cost(0, 0, 0)


async def test_a_rejection_after_a_while_reads_all_shards(client, either, proxy, shards):
    await client.refusal(rpm=90)
    either.clock.advance(ms=1001)
    assert await cost(proxy, client.refusal(rpm=90)) == Cost(1, 0, shards)


@pytest.mark.fast("async-30-2", "async-70-4")
@pytest.mark.parametrize(("amount", "k"), [(20, 2), (30, 2), (45, 3), (70, 4)])
async def test_a_charge_that_is_gathered(client, either, proxy, shards, amount, k):
    """A read of all shards, and two units for each that it is taken from."""
    for number in either.items():
        either.set_level(number, 19_000)
    await client.refusal(rpm=101)
    either.clock.advance(ms=1001)
    await client.refusal(rpm=101)
    assert await cost(proxy, client.take(rpm=amount)) == Cost(2, 2 * k, shards)


async def test_a_charge_that_is_gathered_after_a_while_reads_twice(client, either, proxy, shards):
    await client.refusal(rpm=101)
    either.clock.advance(seconds=2)
    assert await cost(proxy, client.take(rpm=60)) == Cost(3, 6, 2 * shards)


@pytest.mark.fast("async-4", "async-32")
@pytest.mark.parametrize("shards", [2, 4, 8, 32])
async def test_the_first_of_a_process(either, proxy, client, shards):
    """Configuration and the bucket, then a shard for each level of the tree, then the charge."""
    newcomer = await either.client(proxy)
    levels = shards.bit_length() - 1
    assert await cost(proxy, newcomer.take(rpm=1)) == Cost(3, 1, 4 + levels)


async def test_a_lease_that_one_shard_can_not_take_back(client, either, proxy, shards):
    async def raised():
        async with client.acquire(rpm=60):
            raise Failure

    with pytest.raises(Failure), proxy.measure() as seen:
        await raised()
    assert Cost.of(seen).calls <= 12


async def test_a_debt_that_one_shard_can_not_bear(client, either, proxy, shards):
    found = await cost(proxy, client.owe(rpm=50))
    assert found.calls <= 5


async def test_what_is_shown(client, either, proxy, shards):
    assert await cost(proxy, client.limiter.available("user-1", "api")) == Cost(1, 0, shards)

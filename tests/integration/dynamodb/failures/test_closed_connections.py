"""A server closes connections that are idle, without a word: no outage for the next caller."""

import asyncio

import pytest

from tests.integration.dynamodb.failures.messages import arrived
from tests.integration.dynamodb.failures.states import STATES, TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.trees import AsyncTree, SyncTree
from tests.support.dynamodb.world import Client, World
from zae_limiter import Limit, RateLimiterUnavailable

THOUSAND = Limit.per_day("rpm", 1000)


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def world(request, endpoint, stack, unique_name):
    world = World(stack, endpoint, unique_name, tree=request.param())
    yield world
    await world.close()


async def through(world, proxy, **settings) -> Client:
    repo = await world.open(proxy, **settings)
    return Client(repo, world.tree.limiter(repo))


async def stats(client):
    counts = client.repo.get_stats()  # the sync tree's runs in a thread
    return await counts if asyncio.iscoroutine(counts) else counts


async def test_a_balancer_that_closes_after_every_fifth_answer_is_not_noticed(world, proxy):
    client = await through(world, proxy)
    await client.repo.set_system_defaults([THOUSAND])
    proxy.link.answers_per_connection = 5
    for _ in range(100):
        await client.take(rpm=1)
    assert world.level() == 900_000
    assert world.spent() == 100_000


@pytest.mark.each_value_once
@STATES
async def test_a_write_to_a_connection_that_was_closed_is_repeated(world, proxy, state):
    client = await through(world, proxy)
    before = await state(world, client)
    with proxy.fault("close", operation="UpdateItem", times=1) as fault:
        await client.take(rpm=2)
    assert fault.used == 1
    assert world.level() == 1000 * (before - 2)
    assert (await stats(client)).repeated_writes == 1


async def test_a_repetition_meets_further_closed_connections(world, proxy):
    client = await through(world, proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.fault("close", operation="UpdateItem", times=2) as fault:
        await client.take(rpm=2)
    assert fault.used == 2
    assert world.level() == 7000


@pytest.mark.each_value_once
@STATES
async def test_the_original_arrives_after_all(world, proxy, state):
    """It is charged once: the repetition has left the same id on the item."""
    client = await through(world, proxy)
    before = await state(world, client)
    with proxy.measure() as measured:
        with proxy.fault("late", operation="UpdateItem", times=1, delay_ms=None) as message:
            await client.take(rpm=2)
        await arrived(message, measured)
    assert world.level() == 1000 * (before - 2)
    assert (await stats(client)).repeated_writes == 1


@pytest.mark.each_value_once
@STATES
@pytest.mark.parametrize(("others", "extra"), [(3, 0), (4, 1)])
async def test_the_original_arrives_after_writes_of_another_client(
    world, proxy, state, others, extra
):
    """At worst, after more than three other writes, it is charged once more; admitted once."""
    client, other = await through(world, proxy), await world.client()
    before = await state(world, client)
    with proxy.measure() as measured:
        with proxy.fault("late", operation="UpdateItem", times=1, delay_ms=None) as message:
            await client.take(rpm=1)
        for _ in range(others):
            await other.take(rpm=1)
        await arrived(message, measured)
    if state.__name__ != "partly_used":
        extra = 0  # a clamp is not made twice
    assert world.level() == 1000 * (before - 1 - others - extra)


async def test_a_write_that_another_client_has_written_over_is_not_repeated(world, proxy):
    client, other = await through(world, proxy), await world.client()
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    await other.take(rpm=1)
    with (
        proxy.fault("close", operation="UpdateItem", times=1),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=2)
    assert world.level() == 8000


async def test_a_credit_is_not_repeated_while_it_may_still_arrive(world, proxy):
    client = await through(world, proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    with proxy.measure() as measured:
        async with client.acquire(rpm=4) as lease:
            await lease.adjust(rpm=-3)
            proxy.fault("close", operation="UpdateItem", times=1)
    assert [each.operation for each in measured.requests].count("UpdateItem") == 2
    assert world.level() == 6000
    assert (client.repo.pending_settlements, client.repo.lost_settlements) == (1, 0)


async def test_a_read_over_a_closed_connection_is_made_again(world, proxy):
    client = await through(world, proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.fault("close", operation="Query", times=2) as fault:
        assert await client.repo.get_buckets("user-1")
    assert fault.used == 2

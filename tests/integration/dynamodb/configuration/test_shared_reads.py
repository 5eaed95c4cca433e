"""Callers that need the same configuration at the same time share one read of it."""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.support.dynamodb.trees import AsyncTree
from tests.support.dynamodb.world import API, PARENT, USER, seen, together
from zae_limiter import Limit, PermissionDenied, RateLimiterUnavailable

LIMITS, OTHER_LIMITS = [Limit.per_minute("rpm", 10**6)], [Limit.per_minute("rpm", 10**5)]
TTL_S = 60


def crowd(world):
    """As many callers as a test has the time for; the sync tree has a thread for each."""
    return 1000 if isinstance(world.tree, AsyncTree) else 30


def config_reads(measured):
    return len(measured.of("BatchGetItem")) + len(measured.of("TransactGetItems"))


def reads_of_system_level(measured):
    return sum(
        "SYSTEM#" in str(exchange.body)
        for operation in ("BatchGetItem", "TransactGetItems")
        for exchange in measured.of(operation)
    )


@pytest.fixture
async def admin(world):
    admin = await world.client()
    await admin.repo.set_system_defaults(LIMITS)
    return admin


@pytest.fixture
async def client(world, admin, proxy):
    return await world.client(proxy, config_cache_ttl=TTL_S, request_timeout=10)


@pytest.mark.each_value_once
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "expired"])
async def test_a_crowd_reads_the_configuration_of_its_key_once(world, client, proxy, warm):
    if warm:
        await client.take(rpm=1)
        world.clock.advance(seconds=TTL_S)
    with proxy.measure() as measured:
        outcomes = await together(*(client.take(rpm=1) for _ in range(crowd(world))))
    assert set(outcomes) == {None}
    assert config_reads(measured) == 1


async def test_a_crowd_shares_the_read_after_a_change_by_another_client(
    world, admin, client, proxy
):
    await client.take(rpm=1)
    await admin.repo.set_system_defaults(OTHER_LIMITS)
    await admin.take(rpm=1)
    with proxy.measure() as measured:
        outcomes = await together(*(client.take(rpm=1) for _ in range(crowd(world))))
    assert set(outcomes) == {None}
    assert len(measured.of("TransactGetItems")) == 1
    assert config_reads(measured) == 1
    assert world.rate() == (10**8, 10**8, 60_000)


async def test_a_crowd_of_siblings_reads_the_parent_once(world, admin, client, proxy):
    count = 20
    for number in range(count):
        await admin.repo.create_entity(f"child-{number}", parent_id=PARENT, cascade=True)
    with proxy.measure() as measured:
        await together(*(client.take(f"child-{number}", rpm=1) for number in range(count)))
    assert world.spent(entity_id=PARENT) == count * 1000
    assert config_reads(measured) == count + 1


@pytest.mark.each_value_once
@pytest.mark.parametrize("at_once", [False, True])
async def test_cold_entities_read_the_levels_that_they_share_once(world, client, proxy, at_once):
    entities = [f"user-{number}" for number in range(25)]
    with proxy.measure() as measured:
        if at_once:
            await together(*(client.take(each, rpm=1) for each in entities))
        else:
            for each in entities:
                await client.take(each, rpm=1)
    assert config_reads(measured) == len(entities)
    assert reads_of_system_level(measured) == 1


async def test_before_it_expires_one_caller_renews_an_entry_that_the_rest_keep_using(
    world, admin, client, proxy
):
    await client.take(rpm=1)
    world.clock.advance(ms=TTL_S * 800)
    with (
        proxy.fault("black_hole", operation="BatchGetItem") as silent,
        proxy.measure() as measured,
    ):
        renewing = asyncio.ensure_future(client.take(rpm=1))
        await seen(measured, "BatchGetItem")
        async with asyncio.timeout(5):
            for _ in range(3):
                await client.take(rpm=1)
        assert not renewing.done()
        assert silent.used == 1
        silent.remove()
        await renewing
    with proxy.measure() as measured:
        world.clock.advance(ms=TTL_S * 700)
        await client.take(rpm=1)
    assert not config_reads(measured), "it was renewed"


async def test_an_entry_that_cannot_be_renewed_is_used_until_it_expires(world, client, proxy):
    await client.take(rpm=1)
    world.clock.advance(ms=TTL_S * 800)
    with proxy.fault("deny", operation="BatchGetItem") as denied:
        await client.take(rpm=1)
        assert denied.used == 1
        world.clock.advance(ms=TTL_S * 200)
        with pytest.raises(PermissionDenied):
            await client.take(rpm=1)


async def test_a_failed_read_fails_over_to_one_other_reader(world, client, proxy):
    count = 5  # threads that run at once
    proxy.link.request_ms = 50  # time enough for all of them to begin
    with proxy.fault("deny", operation="BatchGetItem") as denied:
        outcomes = await together(*(client.take(rpm=1) for _ in range(count)))
    assert all(isinstance(outcome, PermissionDenied) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == count
    assert denied.used == 2
    with proxy.fault("deny", operation="BatchGetItem", times=1):
        outcomes = await together(*(client.take(rpm=1) for _ in range(count)))
    assert outcomes.count(None) == count - 1


async def test_a_waiting_caller_keeps_to_its_own_deadline(world, admin, proxy):
    client = await world.client(proxy, request_timeout=0.4)
    with proxy.fault("black_hole", operation="BatchGetItem"), Stopwatch() as watch:
        outcomes = await together(*(client.take(rpm=1) for _ in range(5)))
    assert watch.within(0.4)
    assert all(isinstance(outcome, RateLimiterUnavailable) for outcome in outcomes)


class TestTasks:
    @pytest.fixture
    async def world(self, endpoint, stack, unique_name):
        from tests.support.dynamodb.world import World

        world = World(stack, endpoint, unique_name)
        yield world
        await world.close()

    async def test_if_the_reader_is_cancelled_another_caller_reads(self, world, client, proxy):
        with proxy.fault("black_hole", operation="BatchGetItem", times=1) as silent:
            with proxy.measure() as measured:
                first = asyncio.ensure_future(client.take(rpm=1))
                await seen(measured, "BatchGetItem")
                waiting = [asyncio.ensure_future(client.take(rpm=1)) for _ in range(5)]
                await asyncio.sleep(0)
                first.cancel()
                assert await together(*waiting) == [None] * 5
            assert silent.used == 1
            assert config_reads(measured) == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_a_reader_that_is_silent_is_replaced(self, world, client, proxy):
        silence = proxy.fault("black_hole", operation="BatchGetItem", times=1)
        with silence, proxy.measure() as measured:
            first = asyncio.ensure_future(client.take(rpm=1))
            await seen(measured, "BatchGetItem")
            async with asyncio.timeout(3):
                assert await together(*(client.take(rpm=1) for _ in range(5))) == [None] * 5
            assert config_reads(measured) == 2
            first.cancel()
            await asyncio.wait([first])

    async def test_a_change_by_this_client_is_not_overlooked(self, world, client, proxy):
        """A read that began before the change is of no use to a caller that comes after it."""
        proxy.link.answer_ms = 300
        with proxy.measure() as measured:
            first = asyncio.ensure_future(client.limiter.available(USER, API))
            await seen(measured, "BatchGetItem")
            while not measured.of("BatchGetItem")[0].raw_answer:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.001)
            proxy.link.answer_ms = 0
            await client.repo.set_limits(USER, OTHER_LIMITS)
            assert not first.done()
            assert await client.limiter.available(USER, API) == {"rpm": 10**5}
            await first
        assert await client.limiter.available(USER, API) == {"rpm": 10**5}

"""Which calls fail in an outage, with what, and how long it takes."""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.waiting import started
from tests.support.dynamodb.world import API, PARENT, USER, together
from zae_limiter import Limit, RateLimiterUnavailable

HUNDRED = Limit.per_minute("rpm", 100)


async def test_giving_back_to_a_silent_store_does_not_take_a_caller_beyond_its_timeout(
    world, proxy
):
    """The child is charged, then nothing is heard any more: neither of the parent nor of the
    refund to the child."""
    await world.family(child=[HUNDRED], parent=[HUNDRED])
    client = await world.client(proxy, request_timeout=2.0)
    await client.take(rpm=1)
    of_child = f"#{USER}#{API}#".encode()
    passed = []

    def is_lost(exchange):
        if passed or exchange.operation != "UpdateItem" or of_child not in exchange.raw_body:
            return True
        passed.append(exchange)
        return False

    with proxy.fault("black_hole", when=is_lost):
        with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
            await client.take(rpm=1)
        assert watch.within(2.2), watch
    assert len(passed) == 1
    assert (world.level(), world.level(entity_id=PARENT)) == (98_000, 99_000)
    assert client.repo.lost_settlements == 1


async def test_a_waiter_without_time_does_not_take_those_behind_it_along(world, proxy):
    """The store is silent to the first write only; later calls have time for another one."""
    client = await world.client(proxy, request_timeout=3.0)
    await client.repo.set_system_defaults([HUNDRED])
    await client.take(rpm=1)
    with (
        proxy.fault("black_hole", operation="UpdateItem", times=1),
        proxy.fault(
            "black_hole", operation="GetItem", when=lambda each: b"BUCKET#" in each.raw_body
        ),
    ):
        first = await started(client.take(rpm=1))
        second = await started(client.take(rpm=1))
        await asyncio.sleep(1.5)
        late = await together(*(client.take(rpm=1) for _ in range(3)))
        early = await together(first, second)
    assert late == [None] * 3
    assert isinstance(early[0], RateLimiterUnavailable)
    assert world.level() == 99_000 - 1000 * (late + early).count(None)


async def test_calls_that_fail_together_have_each_an_error_of_their_own(world, proxy):
    """Several children whose parent cannot be charged."""
    children = [f"key-{number}" for number in range(3)]
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.create_entity(PARENT)
    for child in children:
        await client.repo.create_entity(child, parent_id=PARENT, cascade=True)
    await client.repo.set_system_defaults([HUNDRED])
    for child in children:
        await client.take(child, rpm=1)
    of_parent = f"#{PARENT}#{API}#".encode()
    with proxy.fault("error_before", when=lambda exchange: of_parent in exchange.raw_body):
        errors = await together(*(client.take(child, rpm=1) for child in children))
    assert all(isinstance(error, RateLimiterUnavailable) for error in errors)
    assert [error.entity_id for error in errors] == children
    assert len(set(map(id, errors))) == len(children)
    assert {world.level(entity_id=child) for child in children} == {99_000}

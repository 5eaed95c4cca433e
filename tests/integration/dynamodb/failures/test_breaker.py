"""The circuit breaker before DynamoDB: what opens it, what closes it, and how soon."""

import asyncio
import time

import pytest
from zae_limiter_contract._async.world import stored
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.states import TEN
from tests.support.dynamodb.seen import REGISTRY, USAGE
from tests.support.dynamodb.waiting import answered
from tests.support.dynamodb.world import together
from zae_limiter import PermissionDenied, RateLimiterUnavailable, RateLimitExceeded

TIMEOUT_S = 0.5
PROBED = b'"#VERSION"'  # the record that a probe reads


@pytest.fixture
async def client(world, proxy):
    patient = await world.client()
    await patient.repo.set_system_defaults([TEN])

    async def opened():
        client = await world.client(proxy, request_timeout=TIMEOUT_S)
        await client.take(rpm=0)
        return client

    return await answered(opened)


async def fails(client, error=RateLimiterUnavailable):
    with pytest.raises(error):
        await client.take(rpm=1)


def is_open(client):
    return client.repo.get_stats().breaker_open


async def test_silence_costs_three_calls_their_time_and_no_more(client, proxy):
    with proxy.fault("black_hole"):
        for _ in range(3):
            assert not is_open(client)
            await fails(client)
        assert is_open(client)
        with Stopwatch() as watch:
            for _ in range(100):
                await fails(client)
        assert watch.within(TIMEOUT_S)


async def test_ends_of_blocks_wait_until_it_is_closed(world, client, proxy):
    """Sent into the outage, nobody would know what becomes of them."""
    async with client.acquire(rpm=1) as first:
        await first.adjust(rpm=2)
        second = client.acquire(rpm=1)
        await (await second.__aenter__()).adjust(rpm=1)
        refused = proxy.fault("throttle", operation="UpdateItem")
    assert client.repo.pending_settlements == 1
    refused.remove()
    with proxy.fault("black_hole"), proxy.measure() as measured:
        for _ in range(4):
            await fails(client)
        assert is_open(client)
        with Stopwatch() as watch:
            await second.__aexit__(None, None, None)
        assert watch.within(TIMEOUT_S)
        assert client.repo.pending_settlements == 2
        await asyncio.sleep(3 * TIMEOUT_S)
    await stored(client.repo)
    assert world.level() == 5000
    assert client.repo.lost_settlements == 0
    debts = [each for each in measured.requests if is_write(each)]
    assert len(debts) == 3  # those of the three calls that have opened it


def is_write(exchange):
    return exchange.operation == "UpdateItem" and b"BUCKET#" in exchange.raw_body


async def test_a_crowd_opens_it_together(client, proxy):
    with proxy.fault("black_hole"):
        outcomes = await together(*(client.take(rpm=1) for _ in range(50)))
        assert all(isinstance(each, RateLimiterUnavailable) for each in outcomes)
        assert is_open(client)


@pytest.mark.parametrize("kind", ["throttle", "error_before"])
async def test_a_store_that_answers_is_not_down(client, proxy, kind):
    with proxy.fault(kind):
        for _ in range(4):
            await fails(client)
    assert not is_open(client)


async def test_a_denial_never_opens_it(client, proxy):
    with proxy.fault("deny"):
        for _ in range(4):
            await fails(client, PermissionDenied)
    assert not is_open(client)


async def test_decisions_without_a_call_are_no_answers(client, proxy):
    """A denied key is rejected without a call, which says nothing about the store."""
    await client.repo.set_mode(entity_id="denied", mode="deny")
    with pytest.raises(RateLimitExceeded):
        await client.take("denied", rpm=1)
    with proxy.fault("black_hole"):
        for _ in range(3):
            with pytest.raises(RateLimitExceeded):
                await client.take("denied", rpm=1)
            await fails(client)
        assert is_open(client)


async def test_answers_to_other_calls_keep_it_closed(client, proxy):
    """One kind of call is lost, as by a filter on the way; the store is there."""
    with proxy.fault("black_hole", operation="UpdateItem"):
        for _ in range(4):
            await fails(client)
            await answered(lambda: client.repo.get_entity("user-1"))
    assert not is_open(client)


@pytest.mark.real_time
async def test_one_probe_at_a_time_and_at_most_one_a_second(client, proxy):
    with proxy.fault("black_hole"):
        for _ in range(3):
            await fails(client)
        with proxy.measure() as measured:
            start = time.monotonic()
            while time.monotonic() - start < 1.3:
                await together(*(client.take(rpm=1) for _ in range(5)))
            seconds = time.monotonic() - start
        in_background = (USAGE, REGISTRY)  # of the acquires before the outage
        asked = [each for each in measured.requests if each.operation not in in_background]
        probes = [each for each in asked if PROBED in each.raw_body]
        # The last call before has looked at its bucket; the proxy may see that only now.
        assert {each.operation for each in asked} == {"GetItem"}
        assert len(asked) - len(probes) <= 1
        # A probe is one read, which a repeatable request may send twice.
        assert 1 <= len(probes) <= 2 * (1 + int(seconds))


async def test_any_answer_closes_it_at_once(client, proxy):
    with proxy.fault("black_hole"):
        for _ in range(3):
            await fails(client)
    assert is_open(client)
    assert await answered(client.repo.ping)  # which does not ask the breaker
    assert not is_open(client)
    await answered(lambda: client.take(rpm=1))


async def test_is_available_asks_the_store_itself(client, proxy):
    with proxy.fault("black_hole"):
        for _ in range(3):
            await fails(client)
        assert not await client.limiter.is_available(timeout=0.1)
    assert await client.limiter.is_available()

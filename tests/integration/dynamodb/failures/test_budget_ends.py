"""The end of a block with a budget, in each fault: its cost is counted once, whatever happens."""

import asyncio
import logging
from decimal import Decimal

import pytest
from zae_limiter_contract._async.world import stored

from tests.integration.dynamodb.failures.messages import arrived, late
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import API, PARENT, USER
from zae_limiter import Limit, RateLimiterUnavailable

# Without thresholds, whose marks are written in the background and would meet the faults.
BUDGET = Limit.budget("usd", 10, per="month", hold_ttl=600, thresholds=())
CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")


@pytest.fixture
async def client(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([BUDGET])
    await client.take(usd=0)
    return client


async def used(client, entity_id=USER):
    availability = await client.limiter.check_availability(entity_id, API)
    (status,) = [each for each in availability.statuses if each.entity_id == entity_id]
    return status.used, status.held


async def begun(client, estimate):
    """Begin a call; return it with its lease."""
    block = client.acquire(usd=estimate)
    return block, await block.__aenter__()


@pytest.mark.fast("0.01-error_before", "5-throttle")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle"])
@pytest.mark.parametrize("cost", ["0.01", "5"])
async def test_one_fault_at_the_end_of_each_call_costs_nothing(client, proxy, kind, cost):
    for _ in range(2):
        async with client.acquire(usd="1") as lease:
            await lease.settle(usd=cost)
            fault = proxy.fault(kind, operation="UpdateItem", times=1)
        assert fault.used == 1
    await stored(client.repo)
    assert await used(client) == (2 * Decimal(cost), 0)
    assert client.repo.lost_settlements == 0


@pytest.mark.parametrize("kind", ["error_before", "throttle", "deny"])
async def test_a_store_that_refuses_for_a_while_gets_the_cost_later(world, client, proxy, kind):
    other = await world.client()
    async with client.acquire(usd="1") as lease:
        await lease.settle(usd="5")
        fault = proxy.fault(kind, operation="UpdateItem")
    await other.take(
        usd="1"
    )  # others use the budget meanwhile; four writes would hide an end in doubt
    assert client.repo.pending_settlements == 1
    fault.remove()
    await stored(client.repo)
    assert await used(other) == (6, 0)
    assert client.repo.lost_settlements == 0


async def test_an_error_on_a_bucket_that_others_use_at_once_costs_nothing(world, client, proxy):
    """The repetition is refused, since another write came; the item shows that ours did not."""
    other, others = await world.client(), []

    def comes_between(exchange):
        if exchange.operation == "UpdateItem" and not others:
            others.append(exchange)
            return True
        return False

    async with client.acquire(usd="1") as lease:
        await lease.settle(usd="5")
        proxy.fault("error_before", when=comes_between)
        proxy.link.request_ms = 40  # time for the other client, behind the error
        taken = asyncio.ensure_future(other.take(usd="1"))
    await taken
    proxy.link.request_ms = 0
    await stored(client.repo)
    assert await used(other) == (6, 0)
    assert client.repo.lost_settlements == 0


async def test_a_late_end_takes_no_hold_of_another_call(world, client, proxy):
    """Both calls hold as much until the same second, so the store cannot tell their holds apart."""
    other_block, other = await begun(client, "3")
    with proxy.measure() as measured:
        async with client.acquire(usd="3") as lease:
            await lease.settle(usd="1")
            message = late(proxy)
        assert client.repo.pending_settlements == 1
        await arrived(message, measured)
        await stored(client.repo)
    assert await used(client) == (1, 3)
    await other.settle(usd="2")
    await other_block.__aexit__(None, None, None)
    assert await used(client) == (3, 0)
    assert client.repo.lost_settlements == 0


async def test_a_hold_that_expires_in_a_long_outage_becomes_a_debt_once(world, client, proxy):
    other = await world.client()
    async with client.acquire(usd="3") as lease:
        await lease.settle(usd="4")
        fault = proxy.fault("deny", operation="UpdateItem")
    world.clock.advance(seconds=1000)
    await other.take(usd="1")  # returns the hold
    assert await used(other) == (1, 0)
    fault.remove()
    await stored(client.repo)
    assert await used(other) == (5, 0)


@pytest.mark.parametrize("side", [USER, PARENT])
async def test_the_side_of_a_cascade_that_was_not_stored_gets_the_cost(world, proxy, side):
    world_client = await world.family(child=[BUDGET], parent=[BUDGET])
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.take(usd=0)
    marker = f"BUCKET#{side}#".encode()
    async with client.acquire(usd="1") as lease:
        await lease.settle(usd="5")
        fault = proxy.fault(
            "error_before", operation="UpdateItem", when=lambda each: marker in each.raw_body
        )
    assert client.repo.pending_settlements == 1
    fault.remove()
    await stored(client.repo)
    assert await used(world_client) == await used(world_client, PARENT) == (5, 0)


# --- in the middle of the block: the outcome is unknown, and the write was not made


@pytest.fixture
async def hasty(world, proxy):
    """A client that knows after 2.5 s that a lost write cannot arrive any more."""
    client = await world.client(proxy, request_timeout=0.5)
    await client.repo.set_system_defaults([BUDGET])
    await client.take(usd=0)
    return client


def lost_writes(proxy):
    return proxy.fault("close", operation="UpdateItem")


async def test_a_cost_that_was_settled_at_once_and_got_lost_is_written_later(hasty, proxy):
    async with hasty.acquire(usd="3") as lease:
        with lost_writes(proxy), pytest.raises(RateLimiterUnavailable):
            await lease.settle(usd="5", now=True)
        assert hasty.repo.pending_settlements == 1
    await stored(hasty.repo)
    assert await used(hasty) == (5, 0)
    assert hasty.repo.lost_settlements == 0


async def test_what_was_released_and_got_lost_is_given_back_later(hasty, proxy):
    async with hasty.acquire(usd="5") as lease:
        with lost_writes(proxy), pytest.raises(RateLimiterUnavailable):
            await lease.release(usd="2")
        assert await used(hasty) == (0, 5)
        await stored(hasty.repo)
        assert await used(hasty) == (0, 3)
    assert await used(hasty) == (3, 0)
    assert hasty.repo.lost_settlements == 0


async def test_what_was_released_and_got_lost_is_given_back_after_the_rest_was_settled(
    hasty, proxy
):
    async with hasty.acquire(usd="5") as lease:
        with lost_writes(proxy), pytest.raises(RateLimiterUnavailable):
            await lease.release(usd="2")
        await lease.settle(usd="1")
    await stored(hasty.repo)
    assert await used(hasty) == (1, 0)
    assert hasty.repo.lost_settlements == 0


async def test_what_was_released_and_got_lost_takes_nothing_of_the_rest_that_was_renewed(
    world, hasty, proxy
):
    async with hasty.acquire(usd="5") as lease:
        with lost_writes(proxy), pytest.raises(RateLimiterUnavailable):
            await lease.release(usd="2")
        world.clock.advance(seconds=300)
        await lease.release(usd=0)  # what is held is looked at again, and renewed
        await stored(hasty.repo)
        assert await used(hasty) == (0, 3)
        world.clock.advance(seconds=400)  # what was not renewed has expired
        assert await used(hasty) == (0, 3)
    assert await used(hasty) == (3, 0)


async def test_a_cost_of_unknown_outcome_is_reported_when_the_client_is_closed(
    hasty, proxy, caplog
):
    async with hasty.acquire(usd="3") as lease:
        with lost_writes(proxy), pytest.raises(RateLimiterUnavailable):
            await lease.settle(usd="5", now=True)
    with caplog.at_level(logging.ERROR, "zae_limiter"):
        await hasty.repo.close(timeout=0)
    assert hasty.repo.lost_settlements == 1
    assert "could not settle" in caplog.text


async def test_an_end_that_got_lost_gives_its_hold_back_later(hasty, proxy):
    async with hasty.acquire(usd="3") as lease:
        await lease.settle(usd="1")
        lost = lost_writes(proxy)
    assert hasty.repo.pending_settlements == 1
    lost.remove()
    await stored(hasty.repo)
    assert await used(hasty) == (1, 0)
    assert hasty.repo.lost_settlements == 0

"""Slots in a bucket item: what they cost, how large they are, and what lost answers do to them."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest

from tests.integration.dynamodb.capacity.sizes import item_bytes
from tests.integration.dynamodb.failures.messages import arrived
from zae_limiter import Limit, RateLimiterUnavailable

LEASE_TTL = 3
FIVE = Limit.concurrent("parallel", 5, lease_ttl=LEASE_TTL)
MANY = Limit.concurrent("parallel", 2000, lease_ttl=LEASE_TTL)
HELD = re.compile(r"x(\d+)_(\d+)")


def held(item):
    """The slots that the item counts as held, by the second that they expire."""
    return {
        int(match[2]): int(value["N"])
        for name, value in item.items()
        if (match := HELD.fullmatch(name))
    }


def free(item):
    return int(item["t_parallel"]["N"]) // 1000


def assert_adds_up(item, slots=5):
    assert free(item) + sum(held(item).values()) == slots


@pytest.fixture
async def client(world, proxy):
    client = await world.client(proxy, request_timeout=2)
    await client.repo.set_system_defaults([FIVE, Limit.per_minute("rpm", 1000)])
    await client.take(rpm=1)
    return client


async def test_taking_and_releasing_are_one_write_each(client, proxy, world):
    with proxy.measure() as seen:
        async with client.acquire(rpm=1) as lease:
            assert seen.operations == {"UpdateItem": 1}
            assert list(held(world.item()).values()) == [1]
            await lease.adjust(rpm=5)
    assert seen.operations == {"UpdateItem": 2}
    assert (seen.wcu, free(world.item())) == (2, 5)
    assert_adds_up(world.item())


async def test_all_leases_of_a_process_are_renewed_in_one_write(client, proxy, world):
    await client.repo.set_system_defaults([MANY])
    async with AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(client.acquire())
            world.clock.advance(ms=10)
        before = max(held(world.item()))
        world.clock.advance(seconds=1)
        with proxy.measure() as seen:
            async with asyncio.timeout(20):
                while max(held(world.item())) == before:  # noqa: ASYNC110 - another task does it
                    await asyncio.sleep(0.02)
        assert seen.operations == {"UpdateItem": 1}
        assert_adds_up(world.item(), 2000)
    assert free(world.item()) == 2000


async def test_two_thousand_slots_are_a_handful_of_numbers(client, world):
    await client.repo.set_system_defaults([MANY, Limit.per_minute("rpm", 1000)])
    sizes = []
    async with AsyncExitStack() as stack:
        for step in range(40):
            await stack.enter_async_context(client.acquire(rpm=1, parallel=20))
            world.clock.advance(ms=100)
            item = world.item()
            assert_adds_up(item, 2000)
            assert len(held(item)) <= 8, step
            sizes.append(item_bytes(item))
    assert max(sizes) <= 1024


@pytest.mark.fast("error_after", "error_before")
@pytest.mark.parametrize("kind", ["lose_answer", "error_after", "close", "error_before", "late"])
async def test_an_acquire_without_an_answer_leaks_no_slot_beyond_its_ttl(
    client, proxy, world, kind
):
    taken = 0
    measuring = proxy.measure()
    fault = proxy.fault(kind, operation="UpdateItem", times=1, delay_ms=None)
    with measuring as measured, fault:
        try:
            async with client.acquire(rpm=1):
                taken = sum(held(world.item()).values())
                assert taken >= 1
        except RateLimiterUnavailable:
            pass
    if kind == "late":
        await arrived(fault, measured)
    assert_adds_up(world.item())
    world.clock.advance(seconds=LEASE_TTL)
    async with client.acquire(parallel=5):
        assert_adds_up(world.item())
    assert free(world.item()) == 5


@pytest.mark.fast("close", "throttle")
@pytest.mark.parametrize("kind", ["lose_answer", "close", "error_after", "throttle"])
async def test_a_release_without_an_answer_is_not_made_twice(client, proxy, world, kind):
    async with client.acquire(parallel=2):
        lease = client.acquire(parallel=2)
        await lease.__aenter__()
        with proxy.fault(kind, operation="UpdateItem", times=1):
            await lease.__aexit__(None, None, None)
        assert_adds_up(world.item())
        assert sum(held(world.item()).values()) in (2, 4)
    world.clock.advance(seconds=LEASE_TTL)
    await client.take(parallel=5)


async def test_a_renewal_of_unknown_outcome_is_not_made_twice(client, proxy, world):
    async with client.acquire(), client.acquire() as lease:
        world.clock.advance(seconds=1)
        with proxy.measure() as seen, proxy.fault("lose_answer"):
            async with asyncio.timeout(20):
                while len(seen.of("UpdateItem")) < 1:  # noqa: ASYNC110 - another thread sees it
                    await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)
        assert len(seen.of("UpdateItem")) == 1
        assert_adds_up(world.item())
        world.clock.advance(seconds=1.1)
        assert lease.lost
    assert_adds_up(world.item())
    world.clock.advance(seconds=LEASE_TTL)
    await client.take(parallel=5)


async def test_slots_that_another_client_has_swept_are_not_released_again(client, world):
    other = await world.client()
    lost = client.acquire(parallel=5)
    await lost.__aenter__()
    world.clock.advance(ms=LEASE_TTL * 1000 - 1001)  # just not lost
    keeper = client.repo.charging.slots
    keeper.close()
    world.clock.advance(ms=1001)
    async with other.acquire(parallel=4):
        world.clock.advance(ms=-1001)  # a clock that is behind by more than it may be
        await lost.__aexit__(None, None, None)
        assert sum(held(world.item()).values()) == 4
        assert_adds_up(world.item())

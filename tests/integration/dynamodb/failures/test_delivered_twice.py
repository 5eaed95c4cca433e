"""A request that something on the way delivers two times is carried out once.

The item shows the ids of its last four writes, so up to three others may come between the two.
"""

import pytest

from tests.integration.dynamodb.failures.messages import arrived
from tests.integration.dynamodb.failures.states import STATES, TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import Failure, failing
from zae_limiter import Limit

BETWEEN = pytest.mark.parametrize("others", [1, 2, 3])


@pytest.fixture
async def client(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    return client


def twice(proxy, skip=0):
    return proxy.fault("twice", operation="UpdateItem", skip=skip, times=1)


async def test_a_first_charge_is_made_once(world, client, proxy):
    with twice(proxy) as fault:
        await client.take(rpm=3)
    assert fault.used == 1
    assert (world.level(), world.spent(), world.admitted()) == (7000, 3000, 1)


async def test_a_charge_is_made_once(world, client, proxy):
    await client.take(rpm=1)
    with twice(proxy) as fault:
        await client.take(rpm=3)
    assert fault.used == 1
    assert (world.level(), world.spent(), world.admitted()) == (6000, 4000, 2)


async def test_a_refund_is_made_once(world, client, proxy):
    await client.take(rpm=6)
    with twice(proxy, skip=1) as fault, failing():
        async with client.acquire(rpm=2):
            raise Failure
    assert fault.used == 1
    assert (world.level(), world.spent()) == (4000, 6000)
    assert client.repo.lost_settlements == 0


async def test_a_debt_is_made_once(world, client, proxy):
    async with client.acquire(rpm=3) as lease:
        await lease.adjust(rpm=4)
        fault = twice(proxy)
    assert fault.used == 1
    assert (world.level(), world.spent()) == (3000, 7000)


# --- other writes come between the two deliveries


def again(proxy, skip=0):
    """The store gets the next write once more when ``arrived`` says so."""
    return proxy.fault("again", operation="UpdateItem", skip=skip, times=1, delay_ms=None)


@pytest.mark.each_value_once
@STATES
@BETWEEN
async def test_a_charge_is_made_once_beside_other_writes(world, proxy, state, others):
    client, other = await world.client(proxy, request_timeout=TIMEOUT_S), await world.client()
    before = await state(world, client)
    with proxy.measure() as measured, again(proxy) as message:
        await client.take(rpm=1)
        for _ in range(others):
            await other.take(rpm=1)
        await arrived(message, measured)
    assert world.level() == 1000 * (before - 1 - others)


@BETWEEN
async def test_a_refund_is_made_once_beside_other_writes(world, client, proxy, others):
    other = await world.client()
    await client.take(rpm=4)
    with proxy.measure() as measured, again(proxy, skip=1) as message:
        with failing():
            async with client.acquire(rpm=2):
                raise Failure
        for _ in range(others):
            await other.take(rpm=1)
        await arrived(message, measured)
    assert (world.level(), world.spent()) == (1000 * (6 - others), 1000 * (4 + others))


async def test_a_refund_is_made_once_although_the_limits_changed(world, client, proxy):
    """A write that adds a limit moves the earlier ids on, too."""
    other = await world.client(config_cache_ttl=0)
    await client.take(rpm=4)
    with proxy.measure() as measured, again(proxy, skip=1) as message:
        with failing():
            async with client.acquire(rpm=2):
                raise Failure
        await other.repo.set_system_defaults([TEN, Limit.per_minute("tpm", 50)])
        await other.take(rpm=1, tpm=1)
        await arrived(message, measured)
    assert (world.level(), world.spent()) == (5000, 5000)


@pytest.mark.parametrize(("count", "is_known"), [(4, True), (5, False)])
async def test_an_item_of_more_than_four_limits_shows_its_last_write_only(
    world, proxy, count, is_known
):
    """The ids of the writes before would take such an item beyond one unit of a write."""
    client, other = await world.client(proxy, request_timeout=TIMEOUT_S), await world.client()
    more = [Limit.per_minute(f"limit-{number}", 50) for number in range(count - 1)]
    await client.repo.set_system_defaults([TEN, *more])
    await client.take(rpm=4)
    with proxy.measure() as measured, again(proxy) as message:
        await client.take(rpm=1)
        await other.take(rpm=1)
        await arrived(message, measured)
    assert world.level() == (4000 if is_known else 3000)

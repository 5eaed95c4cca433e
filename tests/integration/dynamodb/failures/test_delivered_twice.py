"""A request that something on the way delivers two times in a row is carried out once."""

import pytest

from tests.integration.dynamodb.failures.states import TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.world import Failure, failing


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

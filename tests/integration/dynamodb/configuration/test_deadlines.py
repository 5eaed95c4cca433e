"""One acquire stays within ``request_timeout``, whatever it has to read before it charges."""

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.support.dynamodb.world import PARENT, USER
from zae_limiter import Limit, RateLimiterUnavailable

TIMEOUT_S = 1.0  # a read that loses half of it, and a charge after that, show in the sum
LIMITS, OTHER_LIMITS = [Limit.per_minute("rpm", 100)], [Limit.per_minute("rpm", 50)]


@pytest.fixture
async def admin(world):
    admin = await world.client()
    await admin.repo.set_system_defaults(LIMITS)
    return admin


@pytest.fixture
async def client(world, admin, proxy):
    return await world.client(proxy, request_timeout=TIMEOUT_S)


async def fails_in_time(client, proxy):
    look = proxy.fault("black_hole", operation="GetItem")  # at what became of the write
    with look, Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
        await client.take(rpm=1)
    assert watch.within(TIMEOUT_S)


def reads_slowly(proxy, operation="BatchGetItem"):
    """The first attempt of a read is cut off after half of its time; the second one is answered."""
    return proxy.fault("black_hole", operation=operation, times=1)


async def test_a_cold_acquire(client, proxy):
    with reads_slowly(proxy), proxy.fault("black_hole", operation="UpdateItem"):
        await fails_in_time(client, proxy)


async def test_a_cascading_acquire(world, admin, client, proxy):
    await admin.repo.create_entity(USER, parent_id=PARENT, cascade=True)
    with (
        proxy.fault("black_hole", operation="BatchGetItem", times=1),
        proxy.fault("black_hole", operation="BatchGetItem", times=1, skip=1),
        proxy.fault("black_hole", operation="UpdateItem"),
    ):
        await fails_in_time(client, proxy)


async def test_an_acquire_whose_limits_were_refreshed(world, admin, client, proxy):
    await client.take(rpm=1)
    await admin.repo.set_system_defaults(OTHER_LIMITS)
    await admin.take(rpm=1)
    with (
        reads_slowly(proxy, "TransactGetItems"),
        proxy.fault("black_hole", operation="UpdateItem", skip=1),
    ):
        await fails_in_time(client, proxy)

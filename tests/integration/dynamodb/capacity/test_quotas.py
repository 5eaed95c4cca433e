"""What an acquire on a quota costs: one write for the charge, and one for its settlement."""

import pytest

from tests.integration.dynamodb.capacity.world import RPM
from zae_limiter import Limit

SLOW_IN_SYNC_TREE = True  # the same calls

TOKENS = Limit.quota("tokens", 1_000_000, per="month", zone="Europe/Berlin")
USD = Limit.budget("usd", "250", per="day")


@pytest.fixture
async def client(world):
    await world.admin.set_system_defaults([RPM, TOKENS, USD])
    client = await world.client()
    await client.take(rpm=1, tokens=100)
    return client


async def test_a_warm_acquire_and_its_settlement_are_a_write_each(client, proxy):
    for _ in range(3):
        with proxy.measure() as seen:
            await client.take(rpm=1, tokens=100, usd=1)
        assert seen.operations == {"UpdateItem": 2}
        assert seen.wcu == 2


async def test_the_first_acquire_of_a_window_is_a_write_like_others(client, clock, proxy):
    clock.advance(days=40)
    await client.take(rpm=1)  # turns the hour
    with proxy.measure() as seen:
        await client.take(tokens=100, usd=1)
    assert seen.operations == {"UpdateItem": 2}
    assert seen.wcu == 2


async def test_a_rejection_of_a_quota_is_cached(client, proxy):
    await client.take(tokens=999_900)
    await client.refusal(tokens=1)
    with proxy.measure() as seen:
        await client.refusal(tokens=1)
    assert seen.operations == {}

"""A store that does not answer."""

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.sharding.world import rpm
from tests.support.dynamodb.world import together

TIMEOUT_S = 2.0
WORKS = {
    "small charges": lambda client: client.take(rpm=1),
    "large charges": lambda client: client.take(rpm=60),
    "debts": lambda client: client.owe(rpm=90),
}


@pytest.mark.fast("large charges-TransactWriteItems", "debts-TransactWriteItems")
@pytest.mark.parametrize(
    ("work", "operation"),
    [
        ("small charges", "UpdateItem"),
        ("large charges", "BatchGetItem"),
        ("large charges", "TransactWriteItems"),
        ("debts", "UpdateItem"),
        ("debts", "BatchGetItem"),
        ("debts", "TransactWriteItems"),
    ],
)
async def test_no_call_waits_beyond_its_deadline(world, proxy, work, operation):
    client = await world.split_bucket(
        rpm(100), n=4, proxy=proxy, request_timeout=TIMEOUT_S, config_cache_ttl=3600
    )
    await client.take(rpm=5)
    world.clock.advance(minutes=3)
    with proxy.fault("black_hole", operation=operation) as silence, Stopwatch() as watch:
        await together(*(WORKS[work](client) for _ in range(5)))
    assert silence.used
    assert watch.within(TIMEOUT_S)

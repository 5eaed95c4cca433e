"""Workers that always want more get all that accrues, and no more, however many there are."""

import asyncio
import time

import pytest

from tests.integration.dynamodb.capacity.world import API, USER
from zae_limiter import Limit, RateLimitExceeded

pytestmark = pytest.mark.real_time

SLOW_IN_SYNC_TREE = True  # threads that wait are tested by the contract

WORKERS = 6
RATE = 50  # a second
LIMIT = Limit.per_second("rps", RATE)


@pytest.fixture
def clock():
    """The host's time, whatever becomes of its calendar."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (offset_ns + time.monotonic_ns()) // 1_000_000


async def work(client, clock, until_ms):
    """How often it was admitted; polls as soon as its turn may have come."""
    admitted = 0
    while clock() < until_ms:
        try:
            await client.take(rps=1)
            admitted += 1
        except RateLimitExceeded as refusal:
            await asyncio.sleep(refusal.retry_after_seconds)
    return admitted


@pytest.mark.parametrize("seconds", [3, pytest.param(10, marks=pytest.mark.slow)])
async def test_workers_behind_a_long_line_get_the_configured_rate(world, proxy, clock, seconds):
    await world.admin.set_limits(USER, [LIMIT])
    clients = [await world.client() for _ in range(WORKERS)]
    proxy.link.request_ms = proxy.link.answer_ms = 15
    for client in clients:
        await client.limiter.available(USER, API)
    from_ms = clock()
    await clients[0].take(rps=RATE)
    until_ms = from_ms + seconds * 1000
    admitted = sum(await asyncio.gather(*(work(each, clock, until_ms) for each in clients)))
    accrued, most = RATE * seconds, RATE * (clock() - from_ms) / 1000
    print(f"{admitted} of {accrued}, {admitted / accrued:.1%}")  # noqa: T201 - shown by -s
    under_way = 0.03 * RATE  # what accrues during the last round trip
    assert 0.97 * accrued - under_way <= admitted <= most

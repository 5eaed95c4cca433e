"""A crowd of callers of one bucket does not stop the event loop.

The tests count the callers that go on in one step of the loop, which does not depend on speed.
"""

import asyncio

import pytest

from tests.support.dynamodb.world import under_way
from tests.unit.test_waiting_line import Beat
from zae_limiter import Limit, RateLimiter

CALLERS = 1000
SLICE = 250  # callers that one write serves


@pytest.fixture
async def limiter(queueing_repo):
    """A limiter that sends one write at a time; the bucket exists and is known."""
    await queueing_repo.set_system_defaults([Limit.per_minute("rpm", CALLERS)])
    limiter = RateLimiter(queueing_repo)
    async with limiter.acquire("user", "api", {"rpm": 0}):
        pass
    return limiter


async def level(limiter):
    return (await limiter.available("user", "api"))["rpm"]


class Crowd:
    """Callers that hold a token until they are cancelled."""

    def __init__(self, limiter):
        self._limiter = limiter
        self.served, self.ended = Beat(), Beat()

    async def _call(self):
        try:
            async with self._limiter.acquire("user", "api", {"rpm": 1}):
                self.served.ended += 1
                await asyncio.Event().wait()
        finally:
            self.ended.ended += 1

    async def cancelled_once(self, is_time):
        calls = [asyncio.create_task(self._call()) for _ in range(CALLERS)]
        beating = [asyncio.create_task(each.run()) for each in (self.served, self.ended)]
        while True:
            await asyncio.sleep(0)
            if is_time():
                break
        for task in calls:
            task.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for task in beating:
            task.cancel()
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}


async def test_callers_of_one_bucket_are_served_and_refunded_in_slices(limiter):
    crowd = Crowd(limiter)
    await crowd.cancelled_once(lambda: crowd.served.ended == CALLERS)
    for beat in (crowd.served, crowd.ended):
        assert beat.most <= SLICE + 1  # with the leader of another write
    assert await level(limiter) == CALLERS


async def test_callers_that_are_cancelled_in_the_write_queue_end_one_by_one(limiter, proxy):
    crowd = Crowd(limiter)
    async with under_way(proxy, limiter.acquire("user", "api", {"rpm": 1}).__aenter__()) as first:
        await crowd.cancelled_once(lambda: True)
    await first
    assert crowd.served.ended == 0
    assert crowd.ended.most <= 2
    assert await level(limiter) == CALLERS - 1

"""What a refusal says, and what is remembered of it."""

import asyncio

from tests.support.dynamodb.waiting import carried_out
from tests.support.dynamodb.world import under_way
from zae_limiter import Limit, RateLimitExceeded

TWENTY = Limit.per_minute("tpm", 20)


async def test_a_refusal_names_what_was_exceeded_however_long_its_answer_takes(world, proxy):
    """Enough has flowed back meanwhile; when it was judged it had not."""
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TWENTY])
    await client.take(tpm=20)
    async with under_way(proxy, client.take(tpm=5)) as attempt:
        world.clock.advance(seconds=30)
    error = attempt.exception()
    assert isinstance(error, RateLimitExceeded)
    (violation,) = error.violations
    assert (violation.available, violation.requested) == (0, 5)
    assert error.retry_after_seconds == 15


async def test_a_refusal_whose_answer_a_refund_overtakes_is_not_remembered(world, proxy):
    client = await world.client(proxy, rejection_cache_ttl=60)
    other = await world.client()
    await client.repo.set_system_defaults([TWENTY])
    async with client.acquire(tpm=10) as lease:
        await other.take(tpm=10)
        proxy.link.answer_ms = 500
        with proxy.measure() as measured:
            refused = asyncio.ensure_future(client.granted(tpm=5))
            await carried_out(measured)
        proxy.link.answer_ms = 0
        await asyncio.sleep(0.02)  # who comes that much later does not wait for the answer
        await lease.release(tpm=10)
        assert not refused.done()
        assert not await refused
        assert world.level("tpm") == 10_000
        await client.take(tpm=5)
    assert client.repo.get_stats().cached_rejections == 0

"""Several who want to look at the same shards: each is judged by a look that is good for it."""

import asyncio

import pytest

from tests.integration.dynamodb.sharding.world import rpm
from tests.support.dynamodb.world import seen, together, under_way
from zae_limiter import PermissionDenied

SHARDS = range(4)
QUARTERS = dict.fromkeys(SHARDS, 25_000)
LONG_MS = 500


async def _believing_in(left_milli, world, proxy, **settings):
    """A client that was refused when that little was left in each shard."""
    client = await world.split_bucket(rpm(100), n=4, proxy=proxy, **settings)
    world.leave(dict.fromkeys(SHARDS, left_milli))
    await client.refusal(rpm=20)
    return client


async def _at_the_store(measured, operation):
    """Wait until the store has answered, of which the client does not know yet."""
    await seen(measured, operation)
    async with asyncio.timeout(5):
        while not measured.of(operation)[0].raw_answer:  # noqa: ASYNC110 - another thread sees it
            await asyncio.sleep(0.001)


async def test_if_a_shared_read_is_denied_the_waiting_calls_read_for_themselves(world, proxy):
    client = await _believing_in(0, world, proxy)
    world.leave(QUARTERS)
    world.clock.advance(ms=1)
    before = world.level()
    with proxy.fault("deny", operation="BatchGetItem", times=1) as denied:
        found = await together(*(client.take(rpm=20) for _ in range(3)))
    assert denied.used == 1
    assert isinstance(found[0], PermissionDenied)
    assert found[1:] == [None, None]
    assert world.level() == before - 40_000


@pytest.mark.parametrize(
    ("left_milli", "later_ms", "settings"),
    [(0, 1, {}), (-50_000, 30_000, {"rejection_cache_ttl": 1})],
    ids=["refusals-not-kept", "refusals-kept-a-second"],
)
async def test_if_a_shared_read_is_cancelled_the_waiting_calls_read_for_themselves(
    world, proxy, left_milli, later_ms, settings
):
    client = await _believing_in(left_milli, world, proxy, **settings)
    world.clock.advance(ms=later_ms)
    world.leave(QUARTERS)
    look = client.take(rpm=20)
    async with under_way(proxy, look, operation="BatchGetItem") as first:
        others = [asyncio.ensure_future(client.take(rpm=20)) for _ in range(2)]
        await asyncio.sleep(0.005)  # they wait for the first one
        first.cancel()
    assert await together(*others) == [None, None]
    assert first.cancelled()
    assert world.level() == 100_000 - 40_000


async def test_a_read_that_began_before_the_call_is_not_shared(world, proxy):
    """The store was asked when the bucket was empty; it is full when the second caller comes."""
    client = await _believing_in(0, world, proxy)
    world.clock.advance(ms=1)
    proxy.link.answer_ms = LONG_MS
    with proxy.measure() as measured:
        first = asyncio.ensure_future(client.take(rpm=20))
        await _at_the_store(measured, "BatchGetItem")
        world.leave(QUARTERS)
        world.clock.advance(ms=1)
        proxy.link.answer_ms = 0
        second = asyncio.ensure_future(client.take(rpm=20))
        await asyncio.sleep(0.005)
        assert not first.done()
        assert len(measured.of("BatchGetItem")) == 1, "the second one waits for the first"
        await together(first, second)
    assert second.exception() is None
    assert len(measured.of("BatchGetItem")) == 2


async def test_calls_at_the_same_time_share_one_read(world, proxy):
    client = await _believing_in(0, world, proxy)
    world.leave(QUARTERS)
    world.clock.advance(ms=1)
    with proxy.measure() as measured:
        assert await together(*(client.take(rpm=5) for _ in range(4))) == [None] * 4
    assert len(measured.of("BatchGetItem")) == 1

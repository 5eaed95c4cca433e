"""What nobody could give back, and what nobody knows to be taken, is told."""

import logging

import pytest

from tests.integration.dynamodb.sharding.world import rpm
from tests.support.dynamodb.world import Failure, failing
from zae_limiter import RateLimiterUnavailable

BRIEF_S = 1


async def _charged(world, proxy):
    """A client that knows all four shards, full but for one token."""
    client = await world.split_bucket(rpm(100), n=4, proxy=proxy, request_timeout=BRIEF_S)
    await client.refusal(rpm=101)
    return client


async def _give_back(client, proxy, kind, amount):
    """Fail in a block; the first shard takes its part, then something befalls all writes."""
    with failing():
        async with client.acquire(rpm=amount):
            fault = proxy.fault(kind, operation="UpdateItem", skip=1)
            raise Failure
    fault.remove()
    return fault.used


async def test_a_refund_that_no_shard_takes_is_logged_and_counted(world, proxy, caplog):
    client = await _charged(world, proxy)
    before = world.level()
    with caplog.at_level(logging.ERROR, "zae_limiter"):
        assert await _give_back(client, proxy, "throttle", 80)
    lost = before - world.level()
    assert lost > 0
    assert client.repo.get_stats().lost_refunds == 1
    assert client.repo.lost_settlements == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.msg.startswith("could not refund")
    logged = record.args[0]["rpm"]
    # A write that the deadline cuts off may still arrive. It counts as unknown, and not as lost.
    if client.repo.get_stats().unknown_writes:
        assert 0 < logged < lost
    else:
        assert logged == lost


async def test_a_refund_that_all_shards_take_together_is_not_lost(world, proxy, caplog):
    client = await _charged(world, proxy)
    before = world.level()
    with caplog.at_level(logging.WARNING, "zae_limiter"), failing():
        async with client.acquire(rpm=80):
            raise Failure
    assert world.level() == before
    assert client.repo.lost_settlements == 0
    assert caplog.records == []


async def test_a_part_of_a_refund_of_unknown_outcome_counts_as_an_unknown_write(world, proxy):
    """It may stand, and here it does, so it is not given twice."""
    client = await _charged(world, proxy)
    before = world.level()
    with proxy.fault("deny", operation="GetItem"):
        unanswered = await _give_back(client, proxy, "lose_answer", 80)
    assert unanswered == 3
    stats = client.repo.get_stats()
    assert (stats.unknown_writes, stats.lost_refunds) == (3, 0)
    assert world.level() == before


async def test_a_gather_of_unknown_outcome_counts_as_an_unknown_write(world, proxy):
    """Its answer is lost, and so is every look at what it did; what is known is doubted then."""
    client = await _charged(world, proxy)
    before = world.level()
    with (
        proxy.fault("lose_answer", operation="TransactWriteItems") as lost,
        proxy.fault("error_before", operation="GetItem"),
        pytest.raises(RateLimiterUnavailable),
    ):
        await client.take(rpm=60)
    assert lost.used == 1
    assert client.repo.get_stats().unknown_writes == 1
    assert world.level() == before - 60_000
    assert not await client.granted(rpm=60)
    assert await client.granted(rpm=39)
    assert world.level() == 0


async def test_a_gather_that_is_found_to_stand_is_no_unknown_write(world, proxy):
    client = await _charged(world, proxy)
    with proxy.fault("lose_answer", operation="TransactWriteItems", times=1) as lost:
        await client.take(rpm=60)
    assert lost.used == 1
    assert client.repo.get_stats().unknown_writes == 0
    assert world.level() == 39_000

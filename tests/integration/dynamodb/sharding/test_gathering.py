"""Charges that no shard holds by itself, or that only one of them holds."""

import pytest

from tests.integration.dynamodb.sharding.world import Before, rpm
from tests.support.dynamodb.world import API, USER
from zae_limiter import Limit, PermissionDenied, RateLimiter


async def test_missing_permission_for_transactions_is_reported_as_such(world, proxy):
    client = await world.split_bucket(rpm(100), n=4, proxy=proxy)
    with (
        proxy.fault("deny", operation="TransactWriteItems"),
        pytest.raises(PermissionDenied, match="TransactWriteItems"),
    ):
        await client.take(rpm=60)


def _others_take_ten_of_the_fullest(world):
    def take():
        levels = world.levels()
        world.take_from(max(levels, key=levels.get), 10_000)

    return take


async def test_a_charge_that_others_keep_forestalling_is_granted_as_long_as_there_is_enough(
    world, proxy
):
    client = await world.split_bucket(rpm(100), n=4, proxy=proxy)
    others = Before(proxy, _others_take_ten_of_the_fullest(world), times=3)
    await client.take(rpm=60)
    assert others.count == 3
    assert world.level() == 100_000 - 1_000 - 3 * 10_000 - 60_000


async def test_a_charge_that_others_keep_forestalling_is_refused_only_for_a_limit_that_is_exceeded(
    world, proxy
):
    client = await world.split_bucket(rpm(100), n=4, proxy=proxy)
    others = Before(proxy, _others_take_ten_of_the_fullest(world))
    error = await client.refusal(rpm=60)
    (violation,) = error.violations
    assert (violation.available, violation.requested) == (99 - 10 * others.count, 60)
    assert violation.available < 60 <= violation.available + 10


async def test_the_one_shard_that_still_holds_a_charge_is_found_however_many_do_not(world):
    """Others have emptied all but one; each client believes that all are full."""
    first = await world.split_bucket(rpm(3200), n=16, rejection_cache_ttl=1)
    clients = [first, *await world.clients(3, rejection_cache_ttl=1)]
    for client in clients:
        await client.take(rpm=1)
    for client, left in zip(clients, (3, 7, 11, 15), strict=True):
        world.leave({number: 100_000 if number == left else 0 for number in range(16)})
        await client.take(rpm=50)
        assert world.levels()[left] == 50_000


async def test_the_wait_that_is_told_is_how_long_it_takes_until_shards_hold_a_charge(world):
    """The shards are full at different times, and one that is full gains nothing by waiting."""
    client = await world.split_bucket(rpm(60), n=2)
    world.leave({1: 0})
    error = await client.refusal(rpm=50)
    told_s = await client.limiter.time_until_available(USER, API, {"rpm": 50})
    assert told_s == error.retry_after_seconds
    told_ms = round(told_s * 1000)
    world.clock.advance(ms=told_ms - 1)
    assert not await client.granted(rpm=50)
    world.clock.advance(ms=1)
    assert await client.granted(rpm=50)


async def test_a_charge_of_nothing_is_granted_while_shards_owe_different_limits(world):
    """Each shard owes one limit, and there is enough of each in both together."""
    client = await world.split_bucket(rpm(100), Limit.per_minute("tpm", 100), n=2)
    world.take_from(0, 55_000, "rpm")
    world.take_from(1, 55_000, "tpm")
    before = world.level("rpm"), world.level("tpm")
    assert await client.granted(rpm=0)
    assert (world.level("rpm"), world.level("tpm")) == before


async def test_without_speculative_writes_the_rejection_cache_refuses_nothing(world):
    client = await world.split_bucket(rpm(100), n=2, rejection_cache_ttl=1)
    client.limiter = RateLimiter(client.repo, speculative_writes=False)
    await client.take(rpm=99)
    assert not await client.granted(rpm=10)
    world.take_from(0, -20_000)
    assert await client.granted(rpm=10)

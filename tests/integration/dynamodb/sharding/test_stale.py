"""A client that knows how a bucket was works with it as it is."""

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from zae_limiter import Limit

SLOW_IN_SYNC_TREE = True  # the same calls

THOUSAND = Limit.per_minute("rpm", 3200)


@pytest.mark.parametrize(
    "number", [0, 17, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 31))]
)
async def test_the_one_shard_that_others_have_left_is_found(either, number):
    """All seemed full a moment ago."""
    await either.limits(THOUSAND)
    await either.use(rpm=0)
    await either.split(*EVEN[32])
    client = await either.client()
    await client.refusal(rpm=3201)  # sees all of them
    levels = dict.fromkeys(either.shares(), 0) | {number: 100_000}
    either.set_levels(levels)
    either.clock.advance(ms=20)
    assert await client.granted(rpm=30)
    assert either.levels()[number] < 100_000 - 30_000 + 2000


@pytest.mark.parametrize("amount", [90, 150])
async def test_limits_that_others_have_changed_are_learnt_from_the_shards(either, amount):
    """They are cached for a minute, and the shards have newer ones: what fits is granted."""
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*EVEN[4])
    client = await either.client()
    await client.take(rpm=60)
    await either.limits(Limit.per_minute("rpm", 200))
    other = await either.client()
    await other.take(rpm=0)
    await other.refusal(rpm=41)
    either.set_levels(dict.fromkeys(either.shards(), 40_000))
    either.clock.advance(ms=1)
    await client.take(rpm=amount)
    assert either.level() <= 160_000 + 10 - 1000 * amount


@pytest.mark.parametrize("n", [1, 4])
async def test_limits_that_have_changed_hold_from_the_first_refusal_on(either, n):
    """An empty bucket refills at the new rate, and the wait is told by that."""
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*EVEN[n])
    client = await either.client(config_cache_ttl=1)
    await client.take(rpm=100)
    await either.limits(Limit.custom("rpm", 100, 6000, 60))
    either.clock.advance(ms=1001)
    refusal = await client.refusal(rpm=30)
    wait_ms = round(refusal.retry_after_seconds * 1000)
    assert 270 <= wait_ms <= 290  # 1.7 are there, 100 come in a second
    either.clock.advance(ms=wait_ms - 1)
    assert not await client.granted(rpm=30)
    either.clock.advance(ms=1)
    await client.take(rpm=30)


@pytest.mark.parametrize("n", [1, 4])
async def test_a_lower_rate_holds_from_the_first_refusal_on(either, n):
    await either.limits(Limit.custom("rpm", 100, 6000, 60))
    await either.use(rpm=0)
    await either.split(*EVEN[n])
    client = await either.client(config_cache_ttl=1)
    await client.take(rpm=100)
    await either.limits(HUNDRED)
    client = await either.client(config_cache_ttl=1)
    await client.refusal(rpm=30)
    either.clock.advance(ms=600)
    await client.refusal(rpm=30)
    assert await client.limiter.available("user-1", "api") == {"rpm": 1}


@pytest.mark.parametrize("known", [1, 2])
async def test_a_refusal_counts_shards_that_were_never_seen(either, known):
    """The bucket is empty, and was split into more than its client knows."""
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*EVEN[known])
    client = await either.client()
    await client.refusal(rpm=101)
    while (n := len(either.shards())) < 8:
        await either.split(*range(n))
    either.set_levels(dict.fromkeys(range(8), 0))
    either.clock.advance(ms=1)
    refusal = await client.refusal(rpm=90)
    assert [each.available for each in refusal.statuses] == [0]
    assert 53.9 < refusal.retry_after_seconds < 54.1

"""Whoever asks a bucket does not see that it is in several items: what it holds can be had."""

import random

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED, UNEVEN
from tests.support.dynamodb.world import API, USER
from zae_limiter import Limit, RateLimitExceeded

SLOW_IN_SYNC_TREE = True  # the same calls

SHAPES = {f"even-{n}": EVEN[n] for n in (2, 4, 8, 32)} | {
    f"uneven-{n}": UNEVEN[n] for n in (3, 8, 32)
}
LONG = ("even-8", "even-32", "uneven-32")  # 32 shards are also in test_transactions
SHAPE = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, shape in SHAPES.items()
    ],
)
SMALL = {name: shape for name, shape in SHAPES.items() if len(shape) < 8}
SMALL_SHAPE = pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL)
TPM = Limit.per_minute("tpm", 10_000)


async def half_full(world, shape, how):
    """Fifty of a hundred tokens, spread over the shards in some way."""
    await world.limits(HUNDRED)
    await world.use(rpm=0)
    await world.split(*shape)
    shares = world.shares()
    order = sorted(shares)
    random.Random(len(shape)).shuffle(order)
    levels, left = {}, 50_000
    for number in order:
        part = shares[number] // 2 if how == "evenly" else min(left, shares[number])
        levels[number] = part
        left -= part
    levels[order[-1 if how == "evenly" else 0]] += max(left, 0)
    world.set_levels(levels)
    assert world.level() == 50_000


@pytest.mark.fast("async-evenly-even-2", "async-in some-even-4")
@SHAPE
@pytest.mark.parametrize("how", ["evenly", "in some"])
async def test_thirty_percent_can_be_had_where_half_is_there(either, shape, how):
    await half_full(either, shape, how)
    client = await either.client()
    await client.take(rpm=30)
    assert either.level() == 20_000
    await client.take(rpm=20)
    assert either.level() == 0


@pytest.mark.fast("async-even-4", "async-uneven-8")
@SHAPE
async def test_all_of_a_full_bucket_can_be_had(either, shape):
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*shape)
    client = await either.client()
    await client.take(rpm=100)
    assert set(either.levels().values()) == {0}
    assert either.spent() == 100_000


async def test_a_full_shard_wastes_its_refill_while_another_one_is_empty(either):
    """In one piece the bucket would have 75 tokens: half of the refill ran over in a full shard."""
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*EVEN[2])
    either.set_levels({0: 50_000, 1: 0})
    either.clock.advance(seconds=15)
    assert either.levels() == {0: 50_000, 1: 12_500}
    client = await either.client()
    with pytest.raises(RateLimitExceeded):
        await client.take(rpm=63)
    await client.take(rpm=62)


@pytest.mark.fast("async-evenly-even-2", "async-evenly-uneven-8", "async-in some-uneven-3")
@SMALL_SHAPE
@pytest.mark.parametrize("how", ["evenly", "in some"])
async def test_one_token_more_is_refused_and_the_wait_is_exact(either, shape, how):
    """Longer than for one item if a shard runs over meanwhile, and told all the same."""
    await half_full(either, shape, how)
    client = await either.client()
    before = either.items()
    refusal = await client.refusal(rpm=51)
    assert either.items() == before
    wait_ms = round(refusal.retry_after_seconds * 1000)
    assert wait_ms >= 600
    [status] = refusal.statuses
    assert (status.available, status.requested) == (50, 51)
    either.clock.advance(ms=wait_ms - 1)
    assert not await client.granted(rpm=51)
    either.clock.advance(ms=1)
    await client.take(rpm=51)


@pytest.mark.fast("async-even-4", "async-uneven-3")
@SMALL_SHAPE
async def test_the_wait_for_a_single_token_is_exact(either, shape):
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*shape)
    client = await either.client()
    await client.take(rpm=100)
    begun_ms = either.clock()
    for taken in (1, 2):
        refusal = await client.refusal(rpm=1)
        wait_ms = round(refusal.retry_after_seconds * 1000)
        assert 600 * taken <= either.clock() + wait_ms - begun_ms <= 600 * taken + 20
        either.clock.advance(ms=wait_ms - 1)
        assert not await client.granted(rpm=1)
        either.clock.advance(ms=1)
        await client.take(rpm=1)


@pytest.mark.fast("async-even-2", "async-even-8", "async-uneven-8")
@SMALL_SHAPE
async def test_more_than_the_capacity_never_fits(either, shape):
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(*shape)
    client = await either.client()
    refusal = await client.refusal(rpm=101)
    assert refusal.retry_after_seconds == float("inf")
    assert refusal.as_dict()["retry_after_seconds"] is None
    await client.take(rpm=100)


async def test_two_limits_are_gathered_together_or_not_at_all(either):
    await either.limits(HUNDRED, TPM)
    await either.use(rpm=0)
    await either.split(*EVEN[4])
    either.set_levels({0: 25_000, 1: 25_000, 2: 0, 3: 0})
    either.set_levels({0: 0, 1: 0, 2: 2_500_000, 3: 2_500_000}, "tpm")
    client = await either.client()
    before = either.items()
    refusal = await client.refusal(rpm=10, tpm=5001)
    assert {each.limit_name: each.exceeded for each in refusal.statuses} == {
        "rpm": False,
        "tpm": True,
    }
    assert either.items() == before
    await client.take(rpm=50, tpm=5000)
    assert (either.level(), either.level("tpm")) == (0, 0)
    assert (either.spent(), either.spent("tpm")) == (50_000, 5_000_000)
    assert either.admitted() == 2


async def test_waits_of_two_limits_in_different_shards_are_exact(either):
    await either.limits(HUNDRED, TPM)
    await either.use(rpm=0)
    await either.split(*UNEVEN[3])
    either.set_levels({0: 3_000, 1: 17_000, 2: 0})
    either.set_levels({0: 0, 1: 0, 2: 2_500_000}, "tpm")
    client = await either.client()
    refusal = await client.refusal(rpm=40, tpm=4000)
    wait_ms = round(refusal.retry_after_seconds * 1000)
    either.clock.advance(ms=wait_ms - 1)
    assert not await client.granted(rpm=40, tpm=4000)
    either.clock.advance(ms=1)
    await client.take(rpm=40, tpm=4000)


async def test_a_debt_somewhere_counts_against_the_whole(either):
    await either.limits(HUNDRED)
    await either.use(rpm=0)
    await either.split(0)
    either.set_levels({0: 40_000, 1: -30_000})
    client = await either.client()
    refusal = await client.refusal(rpm=45)
    wait_ms = round(refusal.retry_after_seconds * 1000)
    either.clock.advance(ms=wait_ms - 1)
    assert not await client.granted(rpm=45)
    either.clock.advance(ms=1)
    await client.take(rpm=45)


@pytest.mark.fast("async-even-2", "async-even-8", "async-uneven-8")
@SMALL_SHAPE
async def test_what_is_shown_is_the_whole(either, shape):
    await half_full(either, shape, "in some")
    client = await either.client()
    assert await client.limiter.available("user-1", "api") == {"rpm": 50}
    [bucket] = await client.repo.get_buckets("user-1", "api")
    assert bucket.tokens == 50
    [bucket] = await client.repo.get_buckets("user-1")
    assert bucket.tokens == 50
    [bucket] = await client.repo.get_resource_buckets("api")
    assert bucket.tokens == 50
    capacity = await client.repo.get_resource_capacity("api", "rpm")
    assert (capacity.total_capacity, capacity.total_available) == (100, 50)


@pytest.mark.parametrize(
    "amount", [20, *(pytest.param(amount, marks=pytest.mark.slow) for amount in (1, 45))]
)
async def test_a_client_that_always_wants_more_gets_all_of_the_rate(world, amount):
    """Who is told to wait comes back in time, and nothing has run over meanwhile."""
    await world.limits(HUNDRED)
    await world.use(rpm=0)
    await world.split(*EVEN[8])
    client = await world.client(config_cache_ttl=10**6)
    begun_ms, taken = world.clock(), 0
    while world.clock() - begun_ms < 120_000:
        try:
            await client.take(rpm=amount)
            taken += amount
        except RateLimitExceeded as refusal:
            world.clock.advance(seconds=refusal.retry_after_seconds)
    brought = 100 + (world.clock() - begun_ms) / 600
    assert brought - amount - 1 <= taken <= brought


async def test_consumption_stays_counted_when_shards_are_split_and_merged(either):
    client = await either.client()
    await client.repo.set_system_defaults([HUNDRED])
    await client.take(rpm=8)
    for _ in range(3):
        await either.split(0)
        for _ in range(4):
            await client.take(rpm=1)
        await either.merge(0)
        await client.take(rpm=1)
    state = await client.repo.get_bucket(USER, API, "rpm")
    assert state.total_consumed_milli == 23_000
    assert len(either.items()) == 1

"""What fits: the capacity at most, however long nobody came, and not a token more."""

import math

import pytest

from tests.support.dynamodb.world import USER, together
from zae_limiter import Limit, RateLimitExceeded

TEN = Limit.per_minute("rpm", 10)
BUSY, SLOW = Limit.per_second("rps", 1), Limit.per_day("rpd", 10)


async def absent(world, client):
    """Nothing is stored."""


async def just_full(world, client):
    await client.take(rpm=4)
    world.clock.advance(seconds=24)


async def overfull(world, client):
    await client.take(rpm=4)
    world.clock.advance(days=3)


async def overfull_by_a_credit(world, client):
    await client.take(rpm=3)
    async with client.giving_back(rpm=7):
        world.clock.advance(days=3)


FULL = pytest.mark.parametrize("state", [absent, just_full, overfull, overfull_by_a_credit])
WHO = pytest.mark.parametrize("knows_it", [True, False], ids=["who knows it", "a newcomer"])


@pytest.mark.fast("who knows it-overfull", "a newcomer-overfull_by_a_credit")
@FULL
@WHO
async def test_the_whole_capacity_fits_into_a_full_bucket_once(world, state, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await state(world, user)
    client = user if knows_it else other
    await client.take(rpm=10)
    assert world.level() == 0
    assert (await client.refusal(rpm=1)).retry_after_seconds == 6
    assert (await user.refusal(rpm=10)).retry_after_seconds == 60


@pytest.mark.fast("who knows it-absent", "a newcomer-just_full")
@FULL
@WHO
async def test_more_than_the_capacity_never_fits(world, state, knows_it):
    user, other = await world.clients(2)
    await user.repo.set_system_defaults([TEN])
    await state(world, user)
    before = world.item()
    client = user if knows_it else other
    for amount in (11, 10**9):
        refusal = await client.refusal(rpm=amount)
        assert refusal.retry_after_seconds == math.inf
        assert refusal.statuses[0].available == 10
    assert world.item() == before
    await client.take(rpm=10)


@pytest.mark.parametrize("speculative", [True, False])
async def test_an_amount_beyond_one_of_two_limits_takes_nothing_of_the_other(world, speculative):
    client = await world.client()
    client.limiter.speculative_writes = speculative
    await client.repo.set_system_defaults([TEN, Limit.per_minute("tpm", 1000)])
    await client.take(rpm=1, tpm=1)
    world.clock.advance(hours=1)
    await client.refusal(rpm=1, tpm=1001)
    await client.refusal(rpm=11, tpm=1)
    await client.take(rpm=10, tpm=1000)
    assert (world.level("rpm"), world.level("tpm")) == (0, 0)


@pytest.mark.fast("1-60001", "3-60000")
@pytest.mark.parametrize("idle", [0, 1, 59_999, 60_000, 60_001, 3_600_000, 10**11])
@pytest.mark.parametrize("how_many", [1, 3])
async def test_after_any_idle_time_a_burst_is_at_most_the_capacity(world, idle, how_many):
    """Every client has seen the bucket at another time, and none is wrong about it."""
    clients = await world.clients(how_many)
    await clients[0].repo.set_system_defaults([TEN])
    for client in clients:
        await client.take(rpm=1)
        world.clock.advance(seconds=7)
    level = world.level()
    world.clock.advance(ms=idle)
    most = min(10_000, level + idle * 10 // 60) // 1000
    admitted = 0
    for turn in range(2 * 10 + 2):
        admitted += await clients[turn % how_many].granted(rpm=1)
    assert admitted == most


async def test_a_slow_limit_beside_a_busy_one_gets_every_fraction(world):
    """One a second beside ten a day, for a virtual day."""
    client = await world.client()
    await client.repo.set_system_defaults([BUSY, SLOW])
    await client.take(rps=1, rpd=10)
    taken = 0
    for _ in range(96):
        world.clock.advance(minutes=15)
        await client.take(rps=1)
        taken += await client.granted(rpd=1)
    assert taken == 10
    assert world.level("rpd") == 0


async def test_waiting_for_the_retry_time_is_enough_and_a_millisecond_less_is_not(world):
    client, other = await world.clients(2)
    await client.repo.set_system_defaults([Limit.custom("rpm", 7, 13, 11)])
    await client.take(rpm=7)
    for amount in (1, 3, 7):
        wait_ms = round(1000 * (await client.refusal(rpm=amount)).retry_after_seconds)
        world.clock.advance(ms=wait_ms - 1)
        await other.refusal(rpm=amount)
        world.clock.advance(ms=1)
        await other.take(rpm=amount)


async def test_a_refusal_writes_nothing(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=7)
    before = world.item()
    outcomes = await together(*(client.take(rpm=4) for _ in range(20)))
    assert all(isinstance(each, RateLimitExceeded) for each in outcomes)
    assert world.item() == before


async def test_a_call_that_consumes_nothing_is_refused_while_in_debt(world):
    client = await world.client()
    await client.repo.set_system_defaults([TEN, Limit.per_minute("tpm", 100)])
    await client.owe(tpm=101)
    await client.refusal(rpm=1)
    world.clock.advance(ms=599)
    await client.refusal(rpm=1)
    world.clock.advance(ms=1)
    await client.take(rpm=1)
    assert world.admitted(USER) == 2

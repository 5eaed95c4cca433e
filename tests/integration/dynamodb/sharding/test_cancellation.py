"""Tasks that are stopped anywhere between the steps on several shards: nothing is left charged."""

import asyncio

import pytest

from tests.integration.dynamodb.sharding.world import EVEN, HUNDRED
from tests.support.dynamodb.world import Failure, together
from zae_limiter import Limit

STEP_MS = 12
ALL_MOMENTS = range(0, 7 * STEP_MS, STEP_MS * 2 // 3)
MOMENTS = pytest.mark.parametrize(
    "after_ms",
    [
        pytest.param(after_ms, marks=[pytest.mark.slow] if number % 2 else [])
        for number, after_ms in enumerate(ALL_MOMENTS)
    ],
)


@pytest.fixture
async def client(world, proxy):
    """It has seen all of the four shards, each with 24 tokens."""
    await world.limits(HUNDRED)
    await world.use(rpm=0)
    await world.split(*EVEN[4])
    client = await world.client(proxy)
    await client.refusal(rpm=101)
    for number in world.items():
        world.set_level(number, 24_000)
    return client


@pytest.fixture
def slow(proxy):
    """Every call takes a while."""

    def slow():
        proxy.link.request_ms = proxy.link.answer_ms = STEP_MS / 2

    yield slow
    proxy.link.request_ms = proxy.link.answer_ms = 0


async def stopped(work, after_ms):
    """Whether it was stopped before its end."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(after_ms / 1000)
    task.cancel()
    [outcome] = await together(task)
    assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
    return outcome is not None


def left(world):
    return world.level() // 1000


@pytest.mark.fast("gathered-64", "from one shard-80")
@MOMENTS
@pytest.mark.parametrize("amount", [60, 20], ids=["gathered", "from one shard"])
async def test_a_charge(world, client, slow, after_ms, amount):
    world.clock.advance(ms=1)
    slow()
    was_stopped = await stopped(client.take(rpm=amount), after_ms)
    assert left(world) == (96 if was_stopped else 96 - amount)


@pytest.mark.fast("16", "64")
@MOMENTS
async def test_a_charge_with_limits_that_are_new_to_all_shards(world, client, slow, after_ms):
    await world.limits(HUNDRED, Limit.per_minute("tpm", 1000))
    other = await world.client()  # reads the configuration anew
    slow()
    was_stopped = await stopped(client.take(rpm=60, limits=None), after_ms)
    assert left(world) == (96 if was_stopped else 36)
    await other.take(rpm=30, tpm=900)
    assert world.level("tpm") == 100_000


@pytest.mark.fast("20-64", "80-80")
@MOMENTS
@pytest.mark.parametrize("amount", [20, 80])
async def test_a_lease_that_is_given_back(world, client, slow, after_ms, amount):
    acquire = client.acquire(rpm=amount)
    await acquire.__aenter__()
    slow()
    await stopped(acquire.__aexit__(Failure, Failure(), None), after_ms)
    assert left(world) == 96


@pytest.mark.fast("16", "64")
@MOMENTS
async def test_a_debt(world, client, slow, after_ms):
    acquire = client.acquire(rpm=1)
    lease = await acquire.__aenter__()
    await lease.adjust(rpm=90)
    slow()
    await stopped(acquire.__aexit__(None, None, None), after_ms)
    assert left(world) == 5
    assert min(world.levels().values()) >= 0


@pytest.mark.fast("32", "80")
@MOMENTS
async def test_a_release_of_a_lease_that_is_then_given_back(world, client, slow, after_ms):
    async def lease():
        async with client.acquire(rpm=80) as lease:
            slow()
            await lease.release(rpm=70)
            await asyncio.sleep(1)

    assert await stopped(lease(), after_ms)
    assert left(world) == 96


@pytest.mark.fast("0", "48")
@MOMENTS
async def test_some_of_a_crowd(world, client, slow, after_ms):
    """Their charges travel together."""
    slow()
    tasks = [asyncio.ensure_future(client.take(rpm=3)) for _ in range(10)]
    large = asyncio.ensure_future(client.take(rpm=40))
    await asyncio.sleep(after_ms / 1000)
    for task in (*tasks[::2], large):
        task.cancel()
    outcomes = await together(*tasks, large)
    taken = 3 * outcomes[:-1].count(None) + 40 * outcomes[-1:].count(None)
    assert left(world) == 96 - taken
    assert outcomes[1:-1:2].count(None) == 5

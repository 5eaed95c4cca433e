"""Callers who share a write, and what a fault makes of each of them."""

import asyncio

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.failures.states import TEN
from tests.integration.dynamodb.failures.timing import TIMEOUT_S, until
from tests.support.dynamodb.world import USER, Failure, failing, together
from zae_limiter import RateLimiterUnavailable

CARRIED_OUT = ("lose_answer", "cut_answer", "garble", "error_after")


@pytest.fixture
async def low(world, proxy):
    client, other = await world.client(proxy), await world.client()
    await believes_too_little(client, other, USER)
    assert world.level() == 9000
    return client


async def believes_too_little(client, other, entity_id):
    """One token is left, as far as the client has seen; another one has returned eight."""
    await client.repo.set_system_defaults([TEN])
    async with other.giving_back(entity_id, rpm=8):
        await client.take(entity_id, rpm=1)


async def test_a_charge_that_does_not_fit_the_cached_level_fits_the_stored_one(world, low):
    assert await together(low.take(rpm=1), low.take(rpm=5)) == [None, None]
    assert world.level() == 3000


@pytest.mark.fast("0-error_before", "1-error_after")
@pytest.mark.parametrize("kind", [*CARRIED_OUT, "error_before", "throttle", "close"])
@pytest.mark.parametrize("which", [0, 1])
async def test_a_fault_of_one_write_is_not_taken_for_the_success_of_another(
    world, proxy, kind, which
):
    """The same callers are written for twice; each write stands for itself."""
    client, other = await world.client(proxy), await world.client()

    async def fault_of_one(entity_id):
        await believes_too_little(client, other, entity_id)
        with proxy.fault(kind, operation="UpdateItem", skip=which, times=1) as fault:
            outcomes = await together(client.take(entity_id, rpm=1), client.take(entity_id, rpm=2))
        assert fault.used == 1
        level = world.level(entity_id=entity_id)
        admitted = sum(amount for amount, each in zip((1, 2), outcomes, strict=True) if not each)
        assert admitted <= 9 - level // 1000
        return outcomes, level

    if which == 1 and kind != "close":
        await until(([None, None], 6000), fault_of_one)
    else:
        await fault_of_one("user-1")


@pytest.mark.fast("cut_answer", "error_after")
@pytest.mark.parametrize("kind", CARRIED_OUT)
async def test_a_crowd_whose_common_write_lost_its_answer_is_admitted_once(world, proxy, kind):
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])

    async def lost_answer(entity_id):
        await client.take(entity_id, rpm=1)
        with proxy.fault(kind, operation="UpdateItem", times=1):
            outcomes = await together(*(client.take(entity_id, rpm=1) for _ in range(6)))
        level, admitted = world.level(entity_id=entity_id), world.admitted(entity_id)
        assert outcomes.count(None) <= admitted - 1 <= 6
        assert level == 10_000 - 1000 * admitted
        return outcomes, level

    await until(([None] * 6, 3000), lost_answer)


async def test_refunds_and_charges_that_travel_together_are_made_once(world, proxy):
    """Some fail, some take: in whatever writes they meet."""
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    proxy.link.request_ms = 4

    async def failed(amount):
        with failing():
            async with client.acquire(rpm=amount):
                await asyncio.sleep(0.003)
                raise Failure

    with proxy.fault("lose_answer", operation="UpdateItem", skip=1, times=3):
        outcomes = await together(
            failed(2), client.take(rpm=1), failed(1), client.take(rpm=2), failed(3)
        )
    assert all(each is None or isinstance(each, RateLimiterUnavailable) for each in outcomes)
    kept = (outcomes[1] is None) + 2 * (outcomes[3] is None)
    lost = client.repo.lost_settlements + sum(each is not None for each in outcomes)
    assert world.level() <= 9000 - 1000 * kept
    if not lost:
        assert world.level() == 9000 - 1000 * kept
    assert world.level() == 10_000 - world.spent()


async def test_a_cancelled_leader_leaves_its_followers_their_tokens(world, proxy):
    client = await world.client(proxy)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    proxy.link.request_ms = 20
    tasks = [asyncio.ensure_future(client.take(rpm=1)) for _ in range(6)]
    await asyncio.sleep(0.005)
    for task in tasks[:3]:
        task.cancel()
    outcomes = await together(*tasks)
    proxy.link.request_ms = 0
    assert [type(each) for each in outcomes[:3]] == [asyncio.CancelledError] * 3
    assert outcomes[3:] == [None] * 3
    assert world.level() == 6000


async def test_followers_of_a_silent_write_are_decided_in_time_as_well(world, proxy):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with Stopwatch() as watch, proxy.fault("black_hole"):
        first = asyncio.ensure_future(together(client.take(rpm=1)))
        await asyncio.sleep(0.002)
        outcomes = await together(*(client.take(rpm=1, limits=[TEN]) for _ in range(5)))
        outcomes += await first
    assert all(isinstance(each, RateLimiterUnavailable) for each in outcomes)
    assert watch.within(TIMEOUT_S)
    assert world.level() == 9000


async def test_a_new_call_does_not_fail_because_its_leader_has_no_time_left(world, proxy):
    """The first is answered by silence, the second waits for it until its own time is over."""
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=1)
    with proxy.fault("black_hole", times=2):
        old = asyncio.ensure_future(together(client.take(rpm=1)))
        await asyncio.sleep(0.002)
        waiting = asyncio.ensure_future(together(client.take(rpm=1)))
        await asyncio.sleep(0.8 * TIMEOUT_S)
        await client.take(rpm=1)
    outcomes = [*await old, *await waiting]
    assert isinstance(outcomes[0], RateLimiterUnavailable)
    assert world.level() == 8000 - 1000 * outcomes.count(None)

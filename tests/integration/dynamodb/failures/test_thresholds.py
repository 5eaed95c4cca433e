"""Marks of thresholds in faults: no acquire waits for them or fails, and none is raised twice."""

import asyncio
import logging

import pytest

from tests.integration.dynamodb.failures.timing import TIMEOUT_S
from tests.support.dynamodb.thresholds import Told, is_exhaustion, is_mark
from tests.support.dynamodb.world import API, USER, together, written_later
from zae_limiter import Limit, RateLimiter
from zae_limiter._async.engines.items.threshold_marks import RETRY_AFTER_S

TOKENS = Limit.quota("tokens", 1000, per="day")
RPM = Limit.per_minute("rpm", 100)
NOT_MADE = ("close", "error_before", "throttle", "deny", "black_hole")
MADE = ("lose_answer", "error_after", "cut_answer", "garble")


@pytest.fixture
def told():
    return Told()


@pytest.fixture
async def client(world, proxy, told):
    client = await world.client(proxy, request_timeout=TIMEOUT_S)
    await client.repo.set_system_defaults([TOKENS, RPM])
    client.limiter = RateLimiter(client.repo, hooks=told)
    await client.take(tokens=100)
    return client


@pytest.mark.fast("close", "throttle", "black_hole")
@pytest.mark.parametrize("kind", NOT_MADE)
async def test_a_mark_that_fails_is_made_after_a_later_answer(client, proxy, told, kind, caplog):
    caplog.set_level(logging.WARNING, "zae_limiter")
    with proxy.fault(kind, when=is_mark) as fault:
        await client.take(tokens=500)
        assert fault.used
    assert told.percents == []
    assert "could not mark a threshold of 'user-1' on 'api'" in caplog.text
    await asyncio.sleep(RETRY_AFTER_S)
    await client.take(rpm=1)
    assert told.percents == [50]


@pytest.mark.fast("error_before", "deny")
@pytest.mark.parametrize("kind", NOT_MADE)
async def test_an_exhausted_quota_is_marked_after_a_later_rejection(
    client, proxy, told, kind, caplog
):
    caplog.set_level(logging.WARNING, "zae_limiter")
    with proxy.fault(kind, when=is_exhaustion) as fault:
        await client.refusal(tokens=901)
        await written_later(client.repo)
        assert fault.used
    assert told.exhausted == []
    assert "could not mark an exhausted quota of 'user-1' on 'api'" in caplog.text
    await asyncio.sleep(RETRY_AFTER_S)
    await client.refusal(tokens=902)
    await written_later(client.repo)
    assert told.exhausted == [902]


@pytest.mark.fast("lose_answer", "cut_answer")
@pytest.mark.parametrize("kind", MADE)
async def test_a_mark_without_a_proper_answer_is_not_raised_twice(client, proxy, told, kind):
    with proxy.fault(kind, when=is_mark, times=1) as fault:
        await client.take(tokens=500)
        assert fault.used == 1
    await asyncio.sleep(RETRY_AFTER_S)
    await client.take(tokens=100)
    await client.take(tokens=100)
    assert told.percents == [80]
    assert (await client.repo.get_bucket(USER, API, "tokens")).raised == 80


async def test_no_acquire_waits_for_a_mark(client, proxy, told):
    with proxy.fault("hold", when=is_mark):
        for _ in range(3):
            async with client.acquire(tokens=200):
                pass
        assert told.percents == []
    await written_later(client.repo)
    await client.take(rpm=1)
    assert told.percents == [50]


async def test_a_mark_that_comes_after_a_reset_is_refused(world, client, proxy, told):
    other = await world.client()
    with proxy.fault("hold", when=is_mark):
        async with client.acquire(tokens=600):
            pass
        await other.repo.reset_bucket(USER, API)
        await together(*[other.take(rpm=1) for _ in range(3)])
    await written_later(client.repo)
    assert told.percents == []
    assert (await other.repo.get_bucket(USER, API, "tokens")).raised is None
    await client.take(tokens=500)
    assert told.percents == [50]


async def test_a_mark_that_comes_after_a_top_up_is_refused(world, client, proxy, told):
    other = await world.client()
    with proxy.fault("hold", when=is_mark):
        async with client.acquire(tokens=450):
            pass
        await other.repo.top_up(USER, API, {"tokens": 100})
    await written_later(client.repo)
    assert told.percents == []


async def test_a_mark_that_comes_after_another_amount_is_refused(world, client, proxy, told):
    other = await world.client()
    with proxy.fault("hold", when=is_mark):
        async with client.acquire(tokens=450):
            pass
        await other.repo.set_system_defaults([Limit.quota("tokens", 600, per="day"), RPM])
        await other.take(rpm=1)  # 550 of 600 are used, which counts as raised
    await written_later(client.repo)
    assert told.percents == []
    assert (await other.repo.get_bucket(USER, API, "tokens")).raised == 80


async def test_a_rejection_shows_thresholds_that_a_dead_client_has_reached(
    world, client, proxy, told
):
    dying = await world.client(proxy, request_timeout=TIMEOUT_S)
    with proxy.fault("close", when=is_mark):
        await dying.take(tokens=900)
    await client.refusal(tokens=1)
    await written_later(client.repo)
    assert told.percents == [50, 80, 100]


async def test_a_mark_leaves_the_traces_of_charges_alone(world, client, proxy):
    """A client whose answer is lost looks for its write id."""
    with proxy.fault("hold", when=is_mark):
        async with client.acquire(tokens=600):
            pass
        before = world.item()
    await written_later(client.repo)
    after = world.item()
    changed = {name for name in after if after[name] != before.get(name)}
    assert len(changed) == 1
    assert changed.pop().startswith("e")

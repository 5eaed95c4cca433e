"""What an acquire on a quota costs: one write for the charge, and one for its settlement."""

import pytest

from tests.integration.dynamodb.capacity.world import RPM
from tests.support.dynamodb.thresholds import is_exhaustion, is_mark
from tests.support.dynamodb.world import together, written_later
from zae_limiter import Limit

SLOW_IN_SYNC_TREE = True  # the same calls

TOKENS = Limit.quota("tokens", 1_000_000, per="month", zone="Europe/Berlin")
USD = Limit.budget("usd", "250", per="day")


@pytest.fixture
async def client(world):
    await world.admin.set_system_defaults([RPM, TOKENS, USD])
    client = await world.client()
    await client.take(rpm=1, tokens=100)
    return client


async def test_a_warm_acquire_and_its_settlement_are_a_write_each(client, proxy):
    for _ in range(3):
        with proxy.measure() as seen:
            await client.take(rpm=1, tokens=100, usd=1)
        assert seen.operations == {"UpdateItem": 2}
        assert seen.wcu == 2


async def test_the_first_acquire_of_a_window_is_a_write_like_others(client, clock, proxy):
    clock.advance(days=40)
    await client.take(rpm=1)  # turns the hour
    with proxy.measure() as seen:
        await client.take(tokens=100, usd=1)
    assert seen.operations == {"UpdateItem": 2}
    assert seen.wcu == 2


async def test_a_rejection_of_a_quota_is_cached(client, proxy):
    await client.take(tokens=999_900)
    await client.refusal(tokens=1)
    await written_later(client.repo)
    with proxy.measure() as seen:
        await client.refusal(tokens=1)
    assert seen.operations == {}


async def test_the_first_rejection_of_a_window_costs_one_write_and_the_next_ones_nothing(
    world, client, proxy
):
    await client.take(tokens=999_900)
    with proxy.measure() as seen:
        for _ in range(3):
            await client.refusal(tokens=101)
            await written_later(client.repo)
    assert [is_exhaustion(each) for each in seen.requests] == [True]
    assert seen.wcu == 1
    other = await world.client()
    await other.take(rpm=1)
    with proxy.measure() as seen:
        await other.refusal(tokens=102)
        await written_later(other.repo)
    assert seen.operations == {}


async def test_a_threshold_costs_one_more_write(client, proxy):
    await client.take(tokens=499_899)  # 499,999 are used
    with proxy.measure() as seen:
        await client.take(tokens=1)
    marks = [each for each in seen.requests if is_mark(each)]
    assert [each.status for each in marks].count(200) == 1
    # The answer to the settlement, from before the mark, may come after it: then a second mark is
    # sent and refused. Its answer names no units.
    assert len(marks) <= 2
    assert seen.operations == {"UpdateItem": 2 + len(marks)}
    assert seen.wcu == 3
    with proxy.measure() as seen:
        await client.take(tokens=1)
    assert seen.operations == {"UpdateItem": 2}
    assert seen.wcu == 2


async def test_a_call_over_three_thresholds_costs_three_more_writes(client, proxy):
    with proxy.measure() as seen:
        await client.take(tokens=999_900)
    assert seen.operations == {"UpdateItem": 5}
    assert seen.wcu == 5


async def test_the_callers_of_one_process_mark_a_threshold_once(client, proxy):
    await client.take(tokens=499_890)
    with proxy.measure() as seen:
        await together(*[client.take(tokens=1) for _ in range(20)])
    marks = [each for each in seen.requests if is_mark(each)]
    assert [each.status for each in marks].count(200) == 1
    assert len(marks) <= 2  # an answer from before the mark may come after it: then one is refused
    # The answer to a refused write names no units.
    assert seen.wcu == [each.status for each in seen.requests].count(200)

"""Callers of one process share writes, and nobody gets what is not his."""

import asyncio
from contextlib import suppress

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.dynamodb.grouping.links import slow
from tests.support.dynamodb.waiting import answered
from tests.support.dynamodb.world import under_way
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded

USER, API = "user-1", "api"


async def take(limiter, amount=1, entity_id=USER):
    try:
        async with limiter.acquire(entity_id, API, {"rpm": amount}):
            return True
    except RateLimitExceeded:
        return False


async def level(repo, entity_id=USER):
    return (await repo.get_bucket(entity_id, API, "rpm")).tokens


async def start_one(limiter, amount=1):
    """A write that is under way: those who come right now wait for its end."""
    task = asyncio.create_task(take(limiter, amount))
    await asyncio.sleep(0)
    return task


@pytest.fixture
async def ready(repo, limiter):
    """The bucket exists and is known."""

    async def make(*limits):
        await repo.set_system_defaults(limits)
        await take(limiter, 0)
        await repo.list_resources()  # waits for what goes on in the background

    return make


async def test_an_idle_bucket_is_asked_at_once(ready, limiter, proxy):
    await ready(Limit.per_minute("rpm", 100))
    for _ in range(3):
        with proxy.measure() as seen:
            assert await take(limiter)
        assert seen.operations == {"UpdateItem": 1}


async def test_as_many_as_there_are_tokens_win_with_a_few_writes(ready, repo, limiter, proxy):
    await ready(Limit.per_minute("rpm", 150))
    with proxy.measure() as seen:
        granted = await asyncio.gather(*(take(limiter) for _ in range(400)))
    assert sum(granted) == 150
    assert await level(repo) == 0
    assert seen.operations.keys() == {"UpdateItem"}
    assert seen.calls <= 12


async def test_charges_are_served_in_order_and_those_that_do_not_fit_are_skipped(
    ready, repo, limiter, proxy
):
    await ready(Limit.per_minute("rpm", 11))
    with slow(proxy, 20):
        first = await start_one(limiter)
        others = [asyncio.create_task(take(limiter, amount)) for amount in (6, 6, 4)]
        assert await first
        assert await asyncio.gather(*others) == [True, False, True]
    assert await level(repo) == 0


async def test_what_is_given_back_travels_with_the_charges(ready, repo, limiter, proxy):
    await ready(Limit.per_minute("rpm", 100))

    async def adjusted(amount):
        async with limiter.acquire(USER, API, {"rpm": 1}) as lease:
            await lease.adjust(rpm=amount)

    with proxy.measure() as seen:
        await asyncio.gather(*(adjusted(amount) for amount in (-1, 2, 3) * 20))
    assert await level(repo) == 100 - 20 * (0 + 3 + 4)
    assert seen.calls <= 20


async def test_a_refused_one_hears_what_the_others_have_left(ready, limiter, proxy):
    await ready(Limit.per_minute("rpm", 10))
    with slow(proxy, 20):
        first = await start_one(limiter, 4)
        second = asyncio.create_task(take(limiter, 5))
        await asyncio.sleep(0)
        acquire = limiter.acquire(USER, API, {"rpm": 3})
        with pytest.raises(RateLimitExceeded) as caught:
            await acquire.__aenter__()
        assert await first
        assert await second
    (status,) = caught.value.statuses
    assert (status.available, status.retry_after_seconds) == (1, 12)


async def test_limits_of_a_call_are_not_mixed_with_others(ready, repo, limiter, proxy):
    await ready(Limit.per_minute("rpm", 50))
    own = [Limit.per_minute("rpm", 20)]

    async def with_own():
        try:
            async with limiter.acquire(USER, API, {"rpm": 1}, own):
                return True
        except RateLimitExceeded:
            return False

    calls = [take(limiter) if number % 2 else with_own() for number in range(120)]
    granted = await asyncio.gather(*calls)
    assert sum(granted[0::2]) == 20
    assert sum(granted[1::2]) == 50


async def test_a_caller_that_is_cancelled_while_waiting_is_not_charged(ready, queueing_repo, proxy):
    await ready(Limit.per_minute("rpm", 100))
    repo, limiter = queueing_repo, RateLimiter(queueing_repo)
    await take(limiter, 0)
    with proxy.measure() as seen:
        async with under_way(proxy, take(limiter)) as first:
            waiting = asyncio.create_task(take(limiter, 50))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await first
    assert await level(repo) == 99
    assert seen.calls == 1


@pytest.mark.fast("0", "25", "60")
@pytest.mark.parametrize("after_ms", [0, 5, 15, 25, 30, 45, 60])
async def test_cancelled_callers_get_their_share_back_whenever_it_strikes(
    ready, repo, limiter, proxy, after_ms
):
    await ready(Limit.per_minute("rpm", 100))
    with slow(proxy, 20):
        first = await start_one(limiter)
        tasks = [asyncio.create_task(take(limiter)) for _ in range(20)]
        await asyncio.sleep(after_ms / 1000)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert await first
    granted = sum(outcome is True for outcome in outcomes)
    assert granted >= 10
    assert await level(repo) == 99 - granted


KNOWABLE = ["lose_answer", "error_after", "error_before", "throttle"]
GROUP, ATTEMPTS = 10, 50  # callers; a machine that is late may take a few until all share a write


def carries(tokens):
    """Whether a request charges so many tokens at once."""

    def is_it(exchange):
        values = exchange.body.get("ExpressionAttributeValues", {}).values()
        return {"N": str(-1000 * tokens)} in values

    return is_it


@pytest.mark.fast("lose_answer", "error_before", "close")
@pytest.mark.parametrize("kind", [*KNOWABLE, "close"])
async def test_a_group_whose_answer_is_lost_is_charged_once_and_told_alike(
    ready, repo, limiter, proxy, kind
):
    await ready(Limit.per_minute("rpm", 100))
    for entity_id in (f"user-{number}" for number in range(ATTEMPTS)):
        await take(limiter, 1, entity_id)
        fault = proxy.fault(kind, operation="UpdateItem", times=1, when=carries(GROUP))
        with slow(proxy, 10), fault:
            first = asyncio.create_task(take(limiter, 1, entity_id))
            await asyncio.sleep(0)
            others = [asyncio.create_task(take(limiter, 1, entity_id)) for _ in range(GROUP)]
            assert await first
            outcomes = await asyncio.gather(*others, return_exceptions=True)
        if fault.used:  # all of them were in the write that it struck
            break
        assert outcomes == [True] * GROUP
        assert await level(repo, entity_id) == 98 - GROUP
    assert fault.used == 1
    admitted = outcomes.count(True)
    assert all(each is True or isinstance(each, RateLimiterUnavailable) for each in outcomes)
    assert admitted in (0, GROUP)
    assert await level(repo, entity_id) in {98 - admitted, 98 - GROUP}
    if kind in KNOWABLE:
        assert admitted == GROUP
        assert await level(repo, entity_id) == 98 - GROUP


async def test_over_a_slow_network_calls_far_apart_do_not_wait(ready, limiter, proxy):
    await ready(Limit.per_minute("rpm", 100))
    with slow(proxy, 400), proxy.measure() as seen:  # long enough for a machine that stalls
        tasks = []
        for _ in range(6):
            tasks.append(asyncio.create_task(take(limiter)))
            await asyncio.sleep(0.015)
        assert all(await asyncio.gather(*tasks))
    assert seen.overlap >= 2
    assert seen.calls >= 5


async def test_an_outage_is_decided_for_waiting_calls_within_their_time(ready, open_repo, proxy):
    await ready(Limit.per_minute("rpm", 100))
    hasty = RateLimiter(await answered(lambda: open_repo(request_timeout=1.5)))
    await answered(lambda: take(hasty, 0))
    loop = asyncio.get_running_loop()

    async def timed():
        started = loop.time()
        with suppress(RateLimiterUnavailable):
            await take(hasty)
        return loop.time() - started

    with proxy.fault("black_hole"), Stopwatch() as watch:
        tasks = []
        for _ in range(8):
            tasks.append(asyncio.create_task(timed()))
            await asyncio.sleep(0.05)
        longest = max(await asyncio.gather(*tasks))
    assert longest < 2.0 + watch.late_s


async def test_two_event_loops_share_a_repository(repo, limiter):
    await repo.set_system_defaults([Limit.per_minute("rpm", 60)])

    def elsewhere():
        async def many():
            return await asyncio.gather(*(take(limiter) for _ in range(50)))

        return asyncio.run(many())

    here = asyncio.gather(*(take(limiter) for _ in range(50)))
    there = asyncio.to_thread(elsewhere)
    granted = [*(await here), *(await there)]
    assert sum(granted) == 60

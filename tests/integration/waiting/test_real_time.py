"""Waiting by the clocks of real stores: schedules, deadlines, stalls, tokens that are given back.

Asserted are the promises, with an allowance for a machine whose cores other work occupies.
"""

import asyncio
import time

import pytest
from zae_limiter_contract.stopwatch import Stopwatch
from zae_limiter_contract.together import gather

from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

pytestmark = pytest.mark.real_time

ALLOWANCE_S = 0.4


def opened(url):
    provision = "table" if url.startswith("dynamodb") else "stack"
    return Repository.open(url=url, provision=provision, request_timeout=10)


class Callers:
    """Tasks that wait; when each went on, in seconds since the start."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.started_s = time.monotonic()
        self.entered = {}
        self.rejected = {}

    async def wait(self, caller, amount=1, timeout=50.0, entity_id="user-1"):
        try:
            async with self.limiter.acquire(entity_id, "api", {"x": amount}, timeout=timeout):
                self.entered[caller] = time.monotonic() - self.started_s
        except RateLimitExceeded:
            self.rejected[caller] = time.monotonic() - self.started_s

    def start(self, *args, **options):
        return asyncio.create_task(self.wait(*args, **options))


async def emptied(repo, limit):
    """A limiter whose bucket has been emptied just now."""
    await repo.set_system_defaults([limit])
    limiter = RateLimiter(repo)
    async with limiter.acquire("user-1", "api", {"x": limit.capacity}):
        pass
    return limiter


async def used(repo):
    """Net tokens and admitted acquires."""
    (snapshot,), _ = await repo.get_usage_snapshots("user-1", "api", "hourly")
    return snapshot.counters["x"], snapshot.total_events


async def test_a_caller_that_wakes_long_after_its_due_has_lost_its_turn_and_asks_again(any_url):
    async with opened(any_url) as repo:
        callers = Callers(await emptied(repo, Limit.custom("x", 2, 10, 1)))
        tasks = [callers.start(number) for number in range(3)]
        await asyncio.sleep(0.05)
        time.sleep(1.6)  # noqa: ASYNC251 - the process is stopped
        await asyncio.gather(*tasks)
        # All three were due by 0.3 s. The bucket has filled up since: 2 tokens, then one more.
        assert sorted(callers.entered) == [0, 1, 2]
        assert max(callers.entered.values()) >= 1.65
        assert await used(repo) == (5, 4)


async def test_a_caller_that_wakes_after_its_deadline_is_rejected_and_charged_nothing(any_url):
    async with opened(any_url) as repo:
        # One token a second: on a busy machine the caller still comes before the first has accrued.
        callers = Callers(await emptied(repo, Limit.custom("x", 2, 1, 1)))
        task = callers.start("late", timeout=1.1)
        await asyncio.sleep(0.05)
        time.sleep(1.5)  # noqa: ASYNC251 - the event loop is blocked
        await task
        assert not callers.entered
        assert "late" in callers.rejected
        assert await used(repo) == (2, 1)


async def test_tokens_that_another_client_gives_back_let_callers_go_on_earlier(any_url):
    async with opened(any_url) as repo, opened(any_url) as other_repo:
        limit = Limit.custom("x", 40, 10, 1)
        first = Callers(await emptied(repo, limit))
        behind = Callers(RateLimiter(other_repo))
        large = first.start("large", 40)
        await asyncio.sleep(0.2)
        small = behind.start("small")
        await asyncio.sleep(0.2)
        assert await repo.get_bucket("user-1", "api", "x")
        large.cancel()
        await small
        # Due after 4.1 s; it looks after a quarter of that.
        assert behind.entered["small"] < 2.5
        assert await used(repo) == (41, 2)


async def test_a_caller_whose_due_is_its_deadline_goes_on_then_or_is_rejected_then(any_url):
    async with opened(any_url) as repo:
        callers = Callers(await emptied(repo, Limit.custom("x", 5, 10, 1)))
        with Stopwatch() as watch:
            await callers.wait("caller", 3, timeout=0.31)
        assert callers.entered or callers.rejected
        assert watch.within(0.31)
        # Ten tokens accrue in a second, so the usage tells what was charged, and not the level.
        assert await used(repo) == ((5, 1) if callers.rejected else (8, 2))


async def test_callers_wait_for_the_end_of_a_pause_without_asking_meanwhile(dynamodb_url):
    async with opened(dynamodb_url) as repo:
        await repo.set_system_defaults([Limit.custom("x", 10, 10, 1)])
        callers = Callers(RateLimiter(repo))
        await callers.wait("first")
        await repo.list_resources()  # what is written in the background is done
        await callers.limiter.pause("user-1", "api", 1.0)
        callers.started_s, calls = time.monotonic(), repo.get_stats().calls
        await asyncio.gather(*(callers.start(number) for number in range(5)))
        entered = [callers.entered[number] for number in range(5)]
        assert min(entered) > 0.9
        assert entered == sorted(entered)
        # Each asks once during the pause, at most, and once after it.
        assert repo.get_stats().calls - calls <= 10


async def test_a_caller_for_slots_does_not_look_during_a_pause(dynamodb_url):
    async with opened(dynamodb_url) as repo:
        await repo.set_system_defaults([Limit.concurrent("slots", 2)])
        limiter = RateLimiter(repo)
        async with limiter.acquire("user-1", "api", {}):
            pass
        await repo.list_resources()
        await limiter.pause("user-1", "api", 1.5)
        began_s, calls = time.monotonic(), repo.get_stats().calls
        async with limiter.acquire("user-1", "api", {}, timeout=10):
            assert time.monotonic() - began_s > 1.4
        # Turned away, a look after the pause, the acquire, and its end; five more if it looked on.
        assert repo.get_stats().calls - calls <= 5


@pytest.mark.slow
async def test_forty_waiters_are_served_in_order_within_1_percent_of_the_schedule(any_url):
    async with opened(any_url) as repo:
        callers = Callers(await emptied(repo, Limit.custom("x", 10, 10, 1)))
        with Stopwatch() as watch:
            await asyncio.gather(*(callers.start(number) for number in range(40)))
        assert list(callers.entered) == list(range(40))
        first = callers.entered[0]
        for number, moment_s in callers.entered.items():
            ideal_s = first + number / 10
            assert abs(moment_s - ideal_s) < 0.01 * 4.0 + watch.late_s


@pytest.mark.slow
async def test_one_that_needs_fifty_is_served_in_its_turn(any_url):
    async with opened(any_url) as repo:
        callers = Callers(await emptied(repo, Limit.custom("x", 50, 20, 1)))
        tasks = []
        for number in range(20):
            tasks.append(callers.start(number, 50 if number == 10 else 1))
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        assert list(callers.entered) == list(range(20))


def test_threads_are_served_at_the_rate_and_none_is_lost(any_url):
    provision = "table" if any_url.startswith("dynamodb") else "stack"
    with SyncRepository.open(url=any_url, provision=provision, request_timeout=10) as repo:
        repo.set_system_defaults([Limit.custom("x", 5, 40, 1)])
        limiter = SyncRateLimiter(repo)
        entered = []

        def call():
            with limiter.acquire("user-1", "api", {"x": 1}, timeout=30):
                entered.append(time.monotonic())

        with Stopwatch() as watch:
            gather([call] * 25)
        assert len(entered) == 25
        entered.sort()
        assert 0.45 < entered[-1] - entered[0] < 0.5 + ALLOWANCE_S + watch.late_s


async def test_a_caller_for_slots_learns_of_limits_that_its_bucket_has_already(sqlite_url):
    async with opened(sqlite_url) as repo, opened(sqlite_url) as other:
        await other.set_system_defaults([Limit.concurrent("slots", 1)])
        limiter, others = RateLimiter(repo), RateLimiter(other)

        async def wait():
            async with limiter.acquire("user-1", "api", {}, timeout=5):
                pass

        async with others.acquire("user-1", "api", {}):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.5)  # it is rejected, and looks from then on
            await other.set_limits("user-1", [Limit.concurrent("slots", 2)], "api")
            async with others.acquire("user-1", "api", {}):
                pass
            await waiting

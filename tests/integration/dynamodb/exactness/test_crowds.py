"""Many at once: exactly what is there is given out, whoever comes first."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.support.dynamodb.world import Failure, together
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.testing import FakeClock

HUNDRED = Limit.per_minute("rpm", 100)
CLIENTS = pytest.mark.parametrize("clients", [1, 2])


def counted(outcomes):
    return Counter(type(each).__name__ for each in outcomes)


@pytest.mark.each_value_once
@CLIENTS
@pytest.mark.parametrize("idle_s", [30, 30.001, 4000], ids=["just full", "a bit over", "overfull"])
async def test_400_tasks_on_a_full_bucket_get_exactly_its_capacity(world, clients, idle_s):
    clients = await world.clients(clients)
    await clients[0].repo.set_system_defaults([HUNDRED])
    for client in clients:
        await client.take(rpm=50 // len(clients))
    world.clock.advance(seconds=idle_s)
    outcomes = await together(*(clients[n % len(clients)].take(rpm=1) for n in range(400)))
    assert counted(outcomes) == {"NoneType": 100, "RateLimitExceeded": 300}
    assert world.level() == 0
    assert world.spent() == 150_000


@CLIENTS
async def test_400_tasks_on_an_absent_bucket_get_exactly_its_capacity(world, clients):
    clients = await world.clients(clients)
    await clients[0].repo.set_system_defaults([HUNDRED])
    outcomes = await together(*(clients[n % len(clients)].take(rpm=1) for n in range(400)))
    assert counted(outcomes) == {"NoneType": 100, "RateLimitExceeded": 300}
    assert (world.level(), world.spent(), world.admitted()) == (0, 100_000, 100)


async def test_amounts_that_do_not_divide_the_capacity_leave_less_than_the_smallest(world):
    clients = await world.clients(3)
    await clients[0].repo.set_system_defaults([HUNDRED])
    outcomes = await together(*(clients[n % 3].take(rpm=7 + n % 3) for n in range(60)))
    left = world.level() // 1000
    assert 0 <= left < 7
    admitted = sum(7 + n % 3 for n, outcome in enumerate(outcomes) if outcome is None)
    assert admitted == 100 - left


@pytest.mark.parametrize("overfull", [False, True])
async def test_the_limit_that_runs_out_first_decides_and_the_other_keeps_the_rest(world, overfull):
    clients = await world.clients(2)
    await clients[0].repo.set_system_defaults([HUNDRED, Limit.per_day("tpd", 1000)])
    if overfull:
        await clients[0].take(rpm=1, tpd=100)
        world.clock.advance(minutes=5)  # one is over its capacity, the other is not
    before = world.level("tpd") if overfull else 1_000_000
    outcomes = await together(*(clients[n % 2].take(rpm=1, tpd=3) for n in range(200)))
    assert counted(outcomes)["NoneType"] == 100
    assert world.level("rpm") == 0
    assert world.level("tpd") == before - 300_000


async def test_refunds_among_the_crowd_are_given_out_again_and_no_more(world):
    """Each block that fails makes room for one other; nobody gets what is not there."""
    clients = await world.clients(2)
    await clients[0].repo.set_system_defaults([HUNDRED])
    entered = Counter()

    async def one(number):
        async with clients[number % 2].acquire(rpm=1):
            entered["all"] += 1
            await asyncio.sleep(0)
            if number % 3 == 0:
                raise Failure
            entered["kept"] += 1

    outcomes = counted(await together(*(one(number) for number in range(300))))
    assert outcomes["NoneType"] == entered["kept"] <= 100
    assert world.spent() == 1000 * entered["kept"]
    assert world.level() == 100_000 - 1000 * entered["kept"]


async def test_debts_and_credits_of_a_crowd_are_all_counted(world):
    clients = await world.clients(3)
    await clients[0].repo.set_system_defaults([HUNDRED])
    await clients[0].take(rpm=1)
    world.clock.advance(hours=1)

    async def one(number):
        async with clients[number % 3].acquire(rpm=0 if number % 2 else 2) as lease:
            await lease.adjust(rpm=3 if number % 2 else -2)

    assert counted(await together(*(one(number) for number in range(40)))) == {"NoneType": 40}
    assert world.spent() == 1000 * (1 + 20 * 3)
    assert world.level() == 40_000


@CLIENTS
def test_threads_on_a_just_full_bucket_get_exactly_its_capacity(sync_url, clients):
    clock = FakeClock()
    with ExitStack() as opened:
        repositories = [
            opened.enter_context(SyncRepository.open(url=sync_url, clock=clock))
            for _ in range(clients)
        ]
        limiters = [SyncRateLimiter(each) for each in repositories]
        repositories[0].set_system_defaults([HUNDRED])
        with limiters[0].acquire("user-1", "api", {"rpm": 50}):
            clock.advance(seconds=30)

        def one(number):
            with limiters[number % clients].acquire("user-1", "api", {"rpm": 1}):
                pass

        outcomes = in_threads(one, 150)
        assert counted(outcomes) == {"NoneType": 100, "RateLimitExceeded": 50}
        assert repositories[0].get_bucket("user-1", "api", "rpm").tokens_milli == 0


def in_threads(work, count):
    def one(number):
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001 - counted
            return error

    with ThreadPoolExecutor(24) as pool:
        return list(pool.map(one, range(count)))

"""What usage costs in write units, counted on the model table as AWS bills them.

A unit for each write to the item, refused ones included, and one for each index entry that changes.
The acquires themselves cost one unit each with and without usage: all beyond that is extra.
"""

import asyncio
import random

import pytest

from sim.virtual_time import START_S, virtual_time
from tests.support.dynamodb.model.aggregator import Aggregator
from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.history import prepared_engine
from tests.support.dynamodb.model.table import ModelTable
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.settings import Settings

HOUR_S = 3600.0
# Never full and never empty: no write is refused for another reason than the hour.
LIMIT = Limit.custom("rpm", 10_000_000, 1, 86_400)
# Units that an hour of a bucket costs within a day, without and with a processor: the store, the
# clear. Several clients may come at once to the border, and then cost more.
WITHOUT, WITH, OF_MANY = 1, 2, 1.75
# A round trip to DynamoDB, on average. Clients that come within one collide.
NEAR_S, FAR_S = 0.005, 0.02


class Fleet:
    """Clients that acquire now and then, at random, for a while around borders between hours."""

    def __init__(self, loop, clients, every_s, around_s, slow_s=NEAR_S):
        self.loop, self.count, self.every_s, self.around_s = loop, clients, every_s, around_s
        self.chance = random.Random(0)
        self.table = ModelTable()
        self.network = Network(random.Random(0), slow_s=slow_s)

    async def open(self, retention_days=90):
        self.limiters = []
        for _ in range(self.count):
            client = ModelClient(self.table, self.loop, self.network)
            settings = Settings(clock=self.clock, usage_retention_days=retention_days)
            engine = await prepared_engine(client, settings)
            repo = await Repository.builder().clock(self.clock).over(engine)
            if not self.limiters:
                await repo.set_system_defaults([LIMIT])
                await self.take(RateLimiter(repo), 5_000_000)
            self.limiters.append(RateLimiter(repo))
        for limiter in self.limiters:  # all have seen the bucket, and its write rate
            await self.take(limiter)

    def clock(self):
        return int(self.loop.now_s * 1000)

    async def take(self, limiter, amount=1):
        async with limiter.acquire("key", "api", {"rpm": amount}):
            pass

    async def borders(self, count):
        """Return the units of each border beyond one for every acquire."""
        now_s = self.loop.now_s
        first_s = (now_s // HOUR_S + 1) * HOUR_S
        await asyncio.sleep(first_s - now_s - 2 * self.around_s)
        await self.busy(self.around_s)  # so that clients know how busy the bucket is
        extra = []
        for number in range(count):
            border_s = first_s + number * HOUR_S
            await asyncio.sleep(border_s - self.around_s - self.loop.now_s)
            before = self.table.units["all"]
            acquires = await self.busy(2 * self.around_s)
            extra.append(self.table.units["all"] - before - acquires)
        return extra

    async def busy(self, seconds):
        until_s = self.loop.now_s + seconds
        return sum(await asyncio.gather(*(self._run(each, until_s) for each in self.limiters)))

    async def _run(self, limiter, until_s):
        acquires = 0
        while True:
            pause_s = self.chance.expovariate(1 / self.every_s)
            if self.loop.now_s + pause_s >= until_s:
                await asyncio.sleep(max(0.0, until_s - self.loop.now_s))
                return acquires
            await asyncio.sleep(pause_s)
            await self.take(limiter)
            acquires += 1


def extra_units(
    clients, every_s, around_s, borders, *, processor, slow_s=NEAR_S, retention_days=90
):
    with virtual_time(7, START_S + 100) as loop:

        async def run():
            fleet = Fleet(loop, clients, every_s, around_s, slow_s)
            await fleet.open(retention_days)
            if processor:
                Aggregator(fleet.table, loop, random.Random(1), "prompt")
            fleet.table.is_metered = True
            return await fleet.borders(borders)

        return loop.run_until_complete(run())


@pytest.mark.parametrize("processor", [False, True])
@pytest.mark.parametrize(
    ("clients", "every_s", "around_s", "borders"),
    [
        (1, 10.0, 300.0, 6),
        pytest.param(1, 200.0, 1799.0, 6, marks=pytest.mark.slow),
        (16, 30.0, 300.0, 3),
        (16, 200.0, 300.0, 4),  # few writes in a row: averages are an hour old
        pytest.param(16, 300.0, 1799.0, 6, marks=pytest.mark.slow),
        pytest.param(256, 60.0, 60.0, 2, marks=pytest.mark.slow),
    ],
)
def test_an_hour_of_a_bucket_costs_a_few_units(clients, every_s, around_s, borders, processor):
    extra = extra_units(clients, every_s, around_s, borders, processor=processor)
    most = (WITH if processor else WITHOUT) + (OF_MANY if clients > 1 else 0)
    assert sum(extra) / borders <= most, extra
    assert sum(extra) > 0


def test_a_client_looks_again_if_the_hour_is_stored():
    """Both store the hour before; the one that was faster turns the bucket."""
    borders = 40

    async def refused(loop):
        fleet = Fleet(loop, 2, 10.0, 300.0, FAR_S)
        await fleet.open()
        fleet.table.is_metered = True
        for _ in range(borders):
            await asyncio.sleep(HOUR_S)
            await asyncio.gather(*map(fleet.take, fleet.limiters))
        return fleet.table.units["refused"]

    with virtual_time(7, START_S + 100) as loop:
        assert loop.run_until_complete(refused(loop)) <= borders * 3 // 4


@pytest.mark.slow
@pytest.mark.parametrize("processor", [False, True])
@pytest.mark.parametrize("slow_s", [NEAR_S, FAR_S])
@pytest.mark.parametrize(
    ("clients", "every_s", "around_s", "borders"), [(16, 5.0, 30.0, 40), (256, 20.0, 30.0, 20)]
)
def test_many_clients_at_the_border_cost_no_more(
    clients, every_s, around_s, borders, slow_s, processor
):
    extra = extra_units(clients, every_s, around_s, borders, processor=processor, slow_s=slow_s)
    assert sum(extra) / borders <= (WITH if processor else WITHOUT) + OF_MANY, extra


def test_without_usage_nothing_is_extra():
    assert extra_units(4, 30.0, 300.0, 2, processor=False, retention_days=0) == [0, 0]


def test_an_acquire_writes_the_bucket_once_at_the_turn():
    with virtual_time(7, START_S + 100) as loop:

        async def run():
            fleet = Fleet(loop, 1, 10.0, 300.0)
            await fleet.open()
            writes = []
            for _ in range(3):
                await asyncio.sleep(HOUR_S)
                seen = len(fleet.table.stream)
                await fleet.take(fleet.limiters[0])
                writes.append([change.key[1] for change in fleet.table.stream[seen:]])
            return writes

        first, *later = loop.run_until_complete(run())
    assert [key for key in first if key == "#STATE"] == ["#STATE"]
    assert all(keys.count("#STATE") == 1 for keys in later)

"""Histories that random ones seldom contain: buckets made again with the hours of those before.

The real engine over the model table, in virtual time; the ledger checks every write.
"""

import asyncio
import json
import random
from contextlib import suppress

import pytest

from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.history import prepared_engine
from tests.support.dynamodb.model.ledger import Ledger
from tests.support.dynamodb.model.table import ModelTable, Refusal
from tests.support.dynamodb.model.time import START_S, virtual_time
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.models.timestamps import ms_from_iso
from zae_limiter.settings import Settings
from zae_limiter_aggregator import stream
from zae_limiter_aggregator.hours import FinishedHour

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
LIMIT = Limit.custom("rpm", 1000, 1000, 60)


class Scene:
    """One bucket, and clients whose clocks may be behind."""

    def __init__(self, loop):
        self.loop, self.table = loop, ModelTable()
        self.ledger = Ledger(self.table, 90 * DAY_S)

    async def client(self, behind_s=0.0, slow_s=0.001):
        def clock():
            return int((self.loop.now_s - behind_s) * 1000)

        network = Network(random.Random(0), slow_s=slow_s)
        client = ModelClient(self.table, self.loop, network, request_timeout=600.0)
        engine = await prepared_engine(client, Settings(clock=clock, request_timeout=600.0))
        return RateLimiter(await Repository.builder().clock(clock).over(engine))

    async def begin(self):
        self.first = await self.client()
        await self.first.set_system_defaults([LIMIT])
        return self.first

    async def take(self, limiter, amount):
        async with limiter.acquire("key", "api", {"rpm": amount}):
            pass

    async def next_hour(self, at_s=10.0):
        now_s = self.loop.now_s
        await asyncio.sleep((now_s // HOUR_S + 1) * HOUR_S + at_s - now_s)

    async def made_again(self):
        """Turn a bucket, delete it, and make another that is turned to the same hours."""
        first = await self.begin()
        await self.take(first, 1)
        await self.next_hour()
        await self.take(first, 2)
        await (await self.client()).delete_entity("key")  # unnoticed by the first one
        await self.take(await self.client(behind_s=HOUR_S), 4)
        await self.take(await self.client(), 8)
        origins = {change.new["o"]["S"] for change in self.table.stream if is_bucket(change)}
        assert len(origins) == 2
        [item] = [item for item in self.table.items() if item["SK"]["S"] == "#STATE"]
        assert int(item["h"]["N"]) == int(item["ph"]["N"]) + 1 == self.loop.now_s // HOUR_S

    def lose_announcements(self):
        for items in self.table.partitions.values():
            for sk in [sk for sk in items if sk.startswith("#USAGE#")]:
                del items[sk]

    def check(self):
        for bucket in list(self.ledger.used):
            self.ledger.check(bucket, self.loop.now_s)


def is_bucket(change):
    return change.new is not None and change.key[1] == "#STATE"


@pytest.fixture
def scene():
    with virtual_time(1, START_S + 100) as loop:
        yield Scene(loop)


def test_a_client_that_knows_the_earlier_bucket_does_not_turn_the_later_one(scene):
    async def run():
        await scene.made_again()
        await scene.next_hour()
        await scene.take(scene.first, 16)  # it has seen the same hours of the earlier one

    scene.loop.run_until_complete(run())
    scene.check()


def test_what_was_stored_of_the_earlier_bucket_is_not_cleared_in_the_later_one(scene):
    async def run():
        await scene.made_again()
        turn = next(change for change in scene.table.stream if "ph" in (change.new or {}))
        clear = FinishedHour(stream.parse(turn.record()), []).clear(scene.table.name)
        with suppress(Refusal):
            scene.table.call("UpdateItem", json.loads(clear), scene.loop.now_s)

    scene.loop.run_until_complete(run())
    scene.check()


# Several writes each: before, between and after the reads of a query, which take seconds.
@pytest.mark.parametrize("later_s", range(2, 41, 3))
def test_a_query_is_complete_while_an_hour_is_stored_and_the_next_one_turned(scene, later_s):
    """No row is announced: with its open row an hour is found in any order."""
    scene.loop.run_until_complete(query_during_a_turn(scene, later_s, "key", announced=False))


@pytest.mark.parametrize("later_s", range(5, 120, 6))
def test_a_query_by_resource_is_complete_while_an_hour_is_stored(scene, later_s):
    scene.loop.run_until_complete(query_during_a_turn(scene, later_s, None, announced=True))


async def query_during_a_turn(scene, later_s, entity, *, announced):
    first = await scene.begin()
    for amount in (1, 2):
        await scene.take(first, amount)
        await scene.next_hour()
    if not announced:
        scene.lose_announcements()
    slow = await scene.client(slow_s=10.0)
    hour = int(scene.loop.now_s // HOUR_S)

    async def turn():
        await asyncio.sleep(later_s)
        await scene.take(first, 4)

    (page, _), _ = await asyncio.gather(
        slow.repository.get_usage_snapshots(entity, "api", "hourly"), turn()
    )
    shown = {ms_from_iso(each.window_start) // 3_600_000: each.counters for each in page}
    assert (shown[hour - 2], shown[hour - 1]) == ({"rpm": 1}, {"rpm": 2})

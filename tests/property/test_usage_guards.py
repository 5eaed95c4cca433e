"""Histories that random ones seldom contain: buckets made again with the hours of those before.

The real engine over the model table, in virtual time; the ledger checks every write. A write that
is held back arrives when others have changed what it was planned from.
"""

import asyncio
import json
import random
from contextlib import asynccontextmanager, suppress

import pytest

from tests.support.dynamodb.model.aggregator import Aggregator
from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.history import prepared_engine
from tests.support.dynamodb.model.ledger import Ledger
from tests.support.dynamodb.model.table import ModelTable, Refusal
from tests.support.dynamodb.model.time import START_S, virtual_time
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.dynamodb.items.bucket import BucketId
from zae_limiter.models.timestamps import ms_from_iso
from zae_limiter.settings import Settings
from zae_limiter.transport.calls import Deadline
from zae_limiter_aggregator import stream
from zae_limiter_aggregator.hours import FinishedHour

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
LIMIT = Limit.custom("rpm", 1000, 1000, 60)
# Limits of calls: each is stored beside the limit of its name, and dropped when it is full again.
OWN, OTHER = ([Limit.custom("rpm", capacity, capacity, 60)] for capacity in (50, 60))


class HeldClient(ModelClient):
    """Keeps the first call of a kind back until it is released."""

    def hold(self, kind):
        self.kind, self.is_held, self.released = kind, asyncio.Event(), asyncio.Event()

    async def call(self, operation, body, **options):
        kind = getattr(self, "kind", None)
        if kind is not None and kind(operation, json.loads(body) if type(body) is str else body):
            self.kind = None
            self.is_held.set()
            await self.released.wait()
        return await super().call(operation, body, **options)


def is_drop(operation, body):
    """Whether a write drops a limit of earlier calls."""
    names = body.get("ExpressionAttributeNames", {}).values()
    return operation == "UpdateItem" and "p_rpm" in str(names) and " REMOVE " in str(body)


def is_turn(operation, body):
    """Whether a write turns a bucket to the next hour."""
    values = body.get("ExpressionAttributeValues", {}).values()
    return operation == "UpdateItem" and any(each.get("S", "")[:1] == "~" for each in values)


def is_transaction(operation, body):
    return operation == "TransactWriteItems"


class Scene:
    """One bucket, and clients whose clocks may be behind."""

    def __init__(self, loop):
        self.loop, self.table = loop, ModelTable()
        self.ledger = Ledger(self.table, 90 * DAY_S)

    async def client(self, behind_s=0.0, slow_s=0.001, *, stopped_ms=None):
        """Open a client; its clock may be behind, or have stopped."""

        def clock():
            return stopped_ms or int((self.loop.now_s - behind_s) * 1000)

        network = Network(random.Random(0), slow_s=slow_s)
        self.wire = HeldClient(self.table, self.loop, network, request_timeout=600.0)
        engine = await prepared_engine(self.wire, Settings(clock=clock, request_timeout=600.0))
        return RateLimiter(await Repository.builder().clock(clock).over(engine))

    async def begin(self):
        self.first = await self.client()
        await self.first.set_system_defaults([LIMIT])
        return self.first

    async def take(self, limiter, amount, limits=None):
        async with limiter.acquire("key", "api", {"rpm": amount}, limits=limits):
            pass

    @asynccontextmanager
    async def held(self, kind, work):
        """Begin the work of a new client; its first call of a kind arrives after the block."""
        limiter = await self.client()
        wire = self.wire
        wire.hold(kind)
        task = asyncio.ensure_future(work(limiter))
        await wire.is_held.wait()
        yield
        wire.released.set()
        await task

    def dropping(self):
        """Another client drops the limit of an earlier call."""
        return self.held(is_drop, lambda limiter: self.take(limiter, 1, OTHER))

    def item(self, shard=0):
        """An item of the bucket."""
        key = f"/BUCKET#key#api#{shard}"
        [item] = [item for item in self.table.items() if item["PK"]["S"].endswith(key)]
        return item

    async def next_hour(self, at_s=10.0):
        """Sleep until so many seconds after the next border between hours, or before it."""
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
        item = self.item()
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
        first = await scene.begin()
        wire = scene.wire
        await scene.take(first, 1)
        await scene.next_hour()
        await scene.take(first, 2)
        await scene.next_hour()
        wire.hold(is_turn)
        turning = asyncio.ensure_future(scene.take(first, 16))
        await wire.is_held.wait()  # the hour that it replaces is stored
        await (await scene.client()).delete_entity("key")
        for behind_s in (2 * HOUR_S, HOUR_S):  # the later one has the same hours, not stored
            await scene.take(await scene.client(behind_s=behind_s), 4)
        wire.released.set()
        await turning

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


def test_a_limit_is_not_dropped_with_use_of_the_hour_before(scene):
    """Its use was turned, stored and cleared since: as the heir's it would count again."""

    async def run():
        Aggregator(scene.table, scene.loop, random.Random(1), "prompt")
        first = await scene.begin()
        await scene.next_hour(at_s=-200.0)
        await scene.take(first, 1)
        await scene.take(first, 3, OWN)
        await asyncio.sleep(100)  # it is full again
        async with scene.dropping():
            await scene.next_hour()
            await scene.take(first, 2)
            await asyncio.sleep(10)
            assert "ph" not in scene.item()

    scene.loop.run_until_complete(run())
    scene.check()


def test_a_limit_is_not_dropped_with_use_that_came_since(scene):
    """By a client whose clock is behind: what it took has accrued again at the stamp."""

    async def run():
        first = await scene.begin()
        await scene.take(first, 1)
        await scene.take(first, 3, OWN)
        await asyncio.sleep(100)
        async with scene.dropping():
            await scene.take(await scene.client(behind_s=30.0), 2, OWN)

    scene.loop.run_until_complete(run())
    scene.check()


def test_a_limit_is_not_dropped_with_the_finished_hour_of_a_bucket_that_was_made_again(scene):
    async def run():
        first = await scene.begin()
        await scene.take(first, 1)
        created_ms = int(scene.item()["g"]["N"])
        await scene.take(first, 3, OWN)
        await scene.next_hour()
        await scene.take(first, 2)
        before = scene.item()
        async with scene.dropping():  # the finished hour is stored
            await (await scene.client()).delete_entity("key")
            late = await scene.client(stopped_ms=created_ms)
            await scene.take(late, 4)
            await scene.take(late, 3, OWN)
            await scene.take(await scene.client(), 8)
            again = scene.item()
            alike = ("g", "lh", "n", "h", "ph", *(name for name in before if "~" in name))
            same = {name for name in alike if again[name] == before[name]}
            assert set(alike) - same <= {name for name in alike if name.startswith("t_")}
            assert again["o"] != before["o"]

    scene.loop.run_until_complete(run())
    scene.check()


def test_a_bucket_that_was_made_again_does_not_go_with_the_earlier_one(scene):
    async def run():
        first = await scene.begin()
        await scene.take(first, 1)
        before = scene.item()
        async with scene.held(is_transaction, lambda limiter: limiter.delete_entity("key")):
            await (await scene.client()).delete_entity("key")
            await scene.take(await scene.client(stopped_ms=int(before["g"]["N"])), 4)
            again = scene.item()
            assert all(again[name] == before[name] for name in ("g", "wc", "n"))
            assert again["o"] != before["o"]

    scene.loop.run_until_complete(run())
    scene.check()


def test_a_shard_that_was_made_again_is_not_merged_as_the_earlier_one(scene):
    async def split_and_used(stopped_ms):
        """Make a bucket of two shards, the same way every time; return its second item."""
        random.seed(5)
        limiter = await scene.client(stopped_ms=stopped_ms)
        await scene.take(limiter, 1)
        bucket_id = BucketId(limiter.repository.namespace_id, "key", "api")
        resharder = limiter.repository._context.engine.buckets.resharder  # noqa: SLF001
        await resharder.split(bucket_id, Shard(0, 1), lambda: stopped_ms, Deadline(60.0))
        while (item := scene.item(shard=1))["wc"] == {"N": "1"}:
            await scene.take(await scene.client(stopped_ms=stopped_ms), 1)
        return item

    async def merge(limiter):
        charging = limiter.repository.charging
        resolved = await charging.resolve("key", "api", charging.clock())
        bucket_id = BucketId(limiter.repository.namespace_id, "key", "api")
        resharder = limiter.repository._context.engine.buckets.resharder  # noqa: SLF001
        shard = Shard(0, 2)
        await resharder.merge(bucket_id, shard, resolved.in_force, charging.clock, Deadline(60.0))

    async def run():
        await scene.begin()
        stopped_ms = int(scene.loop.now_s * 1000)
        before = await split_and_used(stopped_ms)
        async with scene.held(is_transaction, merge):
            await (await scene.client()).delete_entity("key")
            again = await split_and_used(stopped_ms)
            different = {name for name in before if again[name] != before[name]}
            assert {"o"} <= different <= {"o", "op", "ttl"}

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

"""Directed histories, one for each guard that random histories seldom need.

The real engine runs over the model table, in virtual time; the ledger checks every write. A write
that is held back arrives when others have changed the item that it was planned from.

``DEFECTS`` names the guard of each history: over a table that ignores the guard, the same history
must fail.
"""

import asyncio
import json
import random
from contextlib import asynccontextmanager, suppress

import pytest

from sim.virtual_time import START_S, virtual_time
from tests.support.dynamodb.model import defects
from tests.support.dynamodb.model.aggregator import Aggregator
from tests.support.dynamodb.model.client import ModelClient, Network
from tests.support.dynamodb.model.defects import (
    StaleRowsTable,
    ignored_guard,
    lost_attribute,
    replaced_value,
    table_with,
)
from tests.support.dynamodb.model.history import prepared_engine
from tests.support.dynamodb.model.ledger import Ledger, Wrong
from tests.support.dynamodb.model.table import ModelTable, Refusal
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.timestamps import ms_from_iso
from zae_limiter.settings import Settings
from zae_limiter_aggregator import stream
from zae_limiter_aggregator.hours import finished_hours

HOUR_S, DAY_S = 3600.0, 86_400.0
RETENTION_S = 90 * DAY_S
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
    return operation == "UpdateItem" and defects.is_drop("Update", body)


def is_turn(operation, body):
    return operation == "UpdateItem" and defects.is_turn("Update", body)


def is_first_write(operation, body):
    return operation == "UpdateItem" and defects.is_first_write("Update", body)


def is_store(operation, body):
    return operation == "UpdateItem" and defects.is_store("Update", body)


def is_announcement(operation, body):
    return operation == "UpdateItem" and defects.is_announcement("Update", body)


def is_transaction(operation, body):
    return operation == "TransactWriteItems"


class Scene:
    """One bucket, and clients whose clocks may be behind."""

    def __init__(self, loop, make_table=ModelTable):
        self.loop, self.table = loop, make_table()
        self.ledger = Ledger(self.table, RETENTION_S)

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

    async def take(self, limiter, amount, limits=None, *, entity="key"):
        async with limiter.acquire(entity, "api", {"rpm": amount}, limits=limits):
            pass

    @asynccontextmanager
    async def held(self, kind, work, limiter=None):
        """Begin the work of a client; its first call of a kind arrives after the block."""
        limiter = limiter or await self.client()
        wire = limiter.repository._context.engine._context.store.client  # noqa: SLF001
        wire.hold(kind)
        task = asyncio.ensure_future(work(limiter))
        await wire.is_held.wait()
        yield
        wire.released.set()
        await task

    def dropping(self):
        """Another client drops the limit of an earlier call."""
        return self.held(is_drop, lambda limiter: self.take(limiter, 1, OTHER))

    def turning(self, limiter):
        """The client turns the hour of the bucket."""
        return self.held(is_turn, lambda limiter: self.take(limiter, 16), limiter)

    def merging(self):
        """Another client merges the two shards of the bucket."""
        return self.held(is_transaction, self._merge)

    async def _merge(self, limiter):
        charging = limiter.repository.charging
        resolved = await charging.resolve("key", "api", charging.clock())
        bucket_id = BucketId(limiter.repository.namespace_id, "key", "api")
        resharder = limiter.repository._context.engine.buckets.resharder  # noqa: SLF001
        shard = Shard(0, 2)
        await resharder.merge(bucket_id, shard, resolved.in_force, charging.clock, Deadline(60.0))

    async def split_and_used(self, stopped_ms):
        """Make a bucket of two shards, the same way every time; return its second item."""
        random.seed(5)
        limiter = await self.client(stopped_ms=stopped_ms)
        await self.take(limiter, 1)
        bucket_id = BucketId(limiter.repository.namespace_id, "key", "api")
        resharder = limiter.repository._context.engine.buckets.resharder  # noqa: SLF001
        await resharder.split(bucket_id, Shard(0, 1), lambda: stopped_ms, Deadline(60.0))
        while (item := self.item(shard=1))["wc"] == {"N": "1"}:
            await self.take(await self.client(stopped_ms=stopped_ms), 1)
        return item

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

    async def end_of_day(self, amount):
        """Let clients that are ahead begin the next day, and store the last hour of this one."""
        for ahead_s in (DAY_S, DAY_S + HOUR_S):
            await self.take(await self.client(behind_s=-ahead_s), amount)

    def row(self):
        """The usage row of the first day."""
        rows = [item for item in self.table.items() if item["SK"]["S"].startswith("#USAGE#")]
        return min(rows, key=lambda item: item["SK"]["S"])

    def lose_announcements(self):
        """Remove all usage rows, as if they had never been written."""
        for items in self.table.partitions.values():
            for sk in [sk for sk in items if sk.startswith("#USAGE#")]:
                del items[sk]
        stream = self.table.stream
        stream[:] = [each for each in stream if not each.key[1].startswith("#USAGE#")]

    def check(self):
        for bucket in list(self.ledger.used):
            self.ledger.check(bucket, self.loop.now_s)


def is_bucket(change):
    return change.new is not None and change.key[1] == "#STATE"


async def turned_by_a_client_of_the_earlier_bucket(scene):
    first = await scene.begin()
    await scene.take(first, 1)
    await scene.next_hour()
    await scene.take(first, 2)
    await scene.next_hour()
    async with scene.turning(first):  # the hour that it replaces is stored
        await (await scene.client()).delete_entity("key")
        for behind_s in (2 * HOUR_S, HOUR_S):  # the later one has the same hours, not stored
            await scene.take(await scene.client(behind_s=behind_s), 4)


async def cleared_for_the_earlier_bucket(scene):
    await scene.made_again()
    turn = next(change for change in scene.table.stream if "ph" in (change.new or {}))
    [finished] = finished_hours([stream.parse(turn.record())])
    clear = finished.clear(scene.table.name)
    with suppress(Refusal):
        scene.table.call("UpdateItem", json.loads(clear), scene.loop.now_s)


async def limit_dropped_after_its_hour(scene):
    """The use was turned, stored and cleared: counted for another limit, it would count twice."""
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


async def limit_dropped_after_a_use(scene):
    """The client of the use has a clock that is behind: its tokens have accrued at the stamp."""
    first = await scene.begin()
    await scene.take(first, 1)
    await scene.take(first, 3, OWN)
    await asyncio.sleep(100)
    async with scene.dropping():
        await scene.take(await scene.client(behind_s=30.0), 2, OWN)


async def limit_dropped_of_the_earlier_bucket(scene):
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


async def removed_for_the_earlier_bucket(scene):
    first = await scene.begin()
    await scene.take(first, 1)
    before = scene.item()
    async with scene.held(is_transaction, lambda limiter: limiter.delete_entity("key")):
        await (await scene.client()).delete_entity("key")
        await scene.take(await scene.client(stopped_ms=int(before["g"]["N"])), 4)
        again = scene.item()
        assert all(again[name] == before[name] for name in ("g", "wc", "n"))
        assert again["o"] != before["o"]


async def merged_for_the_earlier_shard(scene):
    await scene.begin()
    stopped_ms = int(scene.loop.now_s * 1000)
    before = await scene.split_and_used(stopped_ms)
    async with scene.merging():
        await (await scene.client()).delete_entity("key")
        again = await scene.split_and_used(stopped_ms)
        different = {name for name in before if again[name] != before[name]}
        assert {"o"} <= different <= {"o", "op", "w1", "w2", "w3", "ttl"}


async def turned_over_an_hour_that_is_not_stored(scene):
    """A turn replaces the hour that its client has stored, not a later one."""
    first = await scene.begin()
    await scene.take(first, 1)
    await scene.next_hour()
    await scene.take(first, 2)
    for _ in range(3):
        await scene.next_hour()
    async with scene.turning(first):
        await scene.take(await scene.client(behind_s=HOUR_S), 4)


async def turned_with_unseen_use_of_children(scene):
    first = await scene.begin()
    await first.create_entity("key")
    await first.create_entity("child", parent_id="key", cascade=True)
    await scene.take(first, 1)
    await scene.next_hour()
    async with scene.turning(first):
        await scene.take(await scene.client(behind_s=HOUR_S / 2), 4, entity="child")


async def announced_after_it_was_closed(scene):
    first = await scene.begin()
    async with scene.held(is_announcement, lambda limiter: scene.take(limiter, 1), first):
        await scene.end_of_day(2)
    await asyncio.sleep(60)


async def stored_after_it_was_closed(scene):
    """The store of the first hour arrives when the last hour of the day has been stored."""
    first = await scene.begin()
    for amount in (1, 2):
        await scene.take(first, amount)
        await scene.next_hour()

    async def late(limiter):
        with suppress(RateLimitExceeded):  # for a client whose clock is right
            await scene.take(limiter, 4)

    async with scene.held(is_store, late):
        await scene.take(await scene.client(), 8)
        await scene.end_of_day(16)
    assert {"S": "closed"} in scene.row().values()


async def stored_while_the_day_goes_on(scene):
    first = await scene.begin()
    for amount in (1, 2, 4):
        await scene.take(first, amount)
        await scene.next_hour()


async def stored_in_a_row_that_was_not_announced(scene):
    first = await scene.begin()
    for amount in (1, 2):
        await scene.take(first, amount)
        await scene.next_hour()
    scene.lose_announcements()
    await scene.take(first, 4)
    assert {"S": "open"} in scene.row().values()


async def written_first_by_two_clients(scene):
    """The later one finds a bucket that is full, and that a client ahead has turned."""
    await scene.begin()
    async with scene.held(is_first_write, lambda limiter: scene.take(limiter, 4)):
        await scene.take(await scene.client(behind_s=5.0), 1)  # full again at the right time
        await scene.take(await scene.client(behind_s=-HOUR_S), 0)


async def merged_after_a_write(scene):
    """The write has taken nothing, so that only the number of writes tells of it."""
    await scene.begin()
    stopped_ms = int(scene.loop.now_s * 1000)
    before = await scene.split_and_used(stopped_ms)
    async with scene.merging():
        while scene.item(shard=1)["wc"] == before["wc"]:
            await scene.take(await scene.client(stopped_ms=stopped_ms), 0)


async def expired_with_hours_that_nothing_has_stored(scene):
    """The hour is at the beginning of a day: usage is kept for the retention after its end."""
    await scene.take(await scene.begin(), 1)
    await asyncio.sleep(RETENTION_S + DAY_S - HOUR_S)
    scene.table.expire(scene.loop.now_s)


HISTORIES = [
    turned_by_a_client_of_the_earlier_bucket,
    turned_over_an_hour_that_is_not_stored,
    turned_with_unseen_use_of_children,
    cleared_for_the_earlier_bucket,
    announced_after_it_was_closed,
    stored_after_it_was_closed,
    stored_while_the_day_goes_on,
    stored_in_a_row_that_was_not_announced,
    written_first_by_two_clients,
    limit_dropped_after_its_hour,
    limit_dropped_after_a_use,
    limit_dropped_of_the_earlier_bucket,
    removed_for_the_earlier_bucket,
    merged_for_the_earlier_shard,
    merged_after_a_write,
    expired_with_hours_that_nothing_has_stored,
]
# The guard that is missing, and the history that finds it.
DEFECTS = {
    "a turn does not look at the origin": (
        ignored_guard("o", defects.is_turn),
        turned_by_a_client_of_the_earlier_bucket,
    ),
    "a turn does not look at the stored hour": (
        ignored_guard("ph", defects.is_turn),
        turned_over_an_hour_that_is_not_stored,
    ),
    "a turn does not look for use of children": (
        ignored_guard(r"k\d+", defects.is_turn),
        turned_with_unseen_use_of_children,
    ),
    "a clear does not look at the origin": (
        ignored_guard("o", defects.is_clear),
        cleared_for_the_earlier_bucket,
    ),
    "an announcement opens a closed origin": (
        replaced_value("o_.*", defects.is_announcement),
        announced_after_it_was_closed,
    ),
    "a store opens a closed origin": (
        replaced_value("o_.*", defects.is_store),
        stored_after_it_was_closed,
    ),
    "a store closes an origin that counts on": (
        defects.closed_by_every_store,
        stored_while_the_day_goes_on,
    ),
    "a store does not open a row that was not announced": (
        lost_attribute("o_.*", defects.is_store),
        stored_in_a_row_that_was_not_announced,
    ),
    "a store makes no index entry of a row that was not announced": (
        lost_attribute("GSI.*", defects.is_store),
        stored_in_a_row_that_was_not_announced,
    ),
    "a first write replaces the origin": (
        replaced_value("o", defects.is_first_write),
        written_first_by_two_clients,
    ),
    "a first write sets the hour back": (
        replaced_value("h", defects.is_first_write),
        written_first_by_two_clients,
    ),
    "a drop does not look at the hour": (
        ignored_guard("h", defects.is_drop),
        limit_dropped_after_its_hour,
    ),
    "a drop does not look at the use": (
        ignored_guard("c_.*", defects.is_drop),
        limit_dropped_after_a_use,
    ),
    "a drop does not look at the origin": (
        ignored_guard("o", defects.is_drop),
        limit_dropped_of_the_earlier_bucket,
    ),
    "a removal does not look at the origin": (
        ignored_guard("o", defects.is_removal),
        removed_for_the_earlier_bucket,
    ),
    "a merge does not look at the origin": (
        ignored_guard("o", defects.is_merge),
        merged_for_the_earlier_shard,
    ),
    "a merge does not look at the number of writes": (
        ignored_guard("wc", defects.is_merge),
        merged_after_a_write,
    ),
    "a bucket expires before its usage": (
        defects.early_expiry(days=8),
        expired_with_hours_that_nothing_has_stored,
    ),
}


@pytest.fixture
def loop():
    with virtual_time(1, START_S + 100) as loop:
        yield loop


@pytest.fixture
def scene(loop):
    return Scene(loop)


def play(scene, history):
    scene.loop.run_until_complete(history(scene))
    scene.check()


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_usage_is_exact(scene, history):
    play(scene, history)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(loop, defect):
    ignored, history = DEFECTS[defect]
    with pytest.raises(Wrong):
        play(Scene(loop, table_with(ignored)), history)


# Several writes each: before, between and after the reads of a query, which take seconds.
@pytest.mark.parametrize("later_s", range(2, 41, 3))
def test_a_query_is_complete_while_an_hour_is_turned(scene, later_s):
    """No row is announced: with its open row an hour is found in any order."""
    scene.loop.run_until_complete(query_during_a_turn(scene, later_s, "key", announced=False))


@pytest.mark.parametrize("later_s", range(5, 120, 6))
def test_a_query_by_resource_is_complete_during_a_store(scene, later_s):
    scene.loop.run_until_complete(query_during_a_turn(scene, later_s, None, announced=True))


@pytest.mark.parametrize(("entity", "announced"), [("key", False), (None, True)])
def test_stale_rows_are_found_by_the_queries(entity, announced):
    """Rows that are read before the buckets miss an hour that is stored in between."""
    with pytest.raises(KeyError):
        query_during_many_turns(StaleRowsTable, entity, announced=announced)


def query_during_many_turns(make_table, entity, *, announced):
    for later_s in range(2, 120, 3):
        with virtual_time(1, START_S + 100) as loop:
            scene = Scene(loop, make_table)
            query = query_during_a_turn(scene, later_s, entity, announced=announced)
            loop.run_until_complete(query)


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

"""Consumption by many clients, and the ledger that every figure of usage is compared with."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

from tests.support.dynamodb.world import written_later
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.store_errors import NoAnswer
from zae_limiter.testing import FakeClock
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.report import Log

HOUR_MS, DAY = 3_600_000, 24
START_MS = 1_767_225_600_000 + 22 * HOUR_MS  # the third hour is of another day
API = "api"
CLIENTS, ENTITIES, HOURS = 8, 200, 3
CHILDREN, PARENT = 20, "org"  # the first entities cascade
RESHAPED = 4  # so many are split and merged
BURST = 24  # consumptions of one client and bucket at a time, which share writes
LONG = 10_000  # consumptions; fewer come one by one
KILLED = "killed-"  # entities of clients that were killed
ROUNDS = 4  # of each hour; between them the test itself changes things
BATCH = 100  # records of one delivery
FAILING_EVERY = 25  # writes of the processor, where they fail in part
MODES = ("in order", "doubled", "shuffled", "failing in part")
# Large enough that nothing is rejected.
VARIANTS = [
    [Limit.custom("rpm", size * 10**6, 10**6, 60), Limit.custom("tpm", 10**9, 10**8, 60)]
    for size in (50, 70, 90)
]


class Failure(Exception):
    """What goes wrong in a block."""


class Fleet:
    """Clients of one table with one clock; ``used`` and ``admitted`` are by entity and hour."""

    def __init__(self, consumptions, entities=ENTITIES):
        self.chance = random.Random(consumptions)
        self.burst = BURST if consumptions >= LONG else 1
        self.clock = FakeClock(START_MS)
        self.used, self.admitted, self.through = Counter(), Counter(), Counter()
        self.entities = [f"key-{number}" for number in range(entities)]
        self.held = []
        self.counts = Counter()
        # Hours of clients that were killed. A write that was open at the kill may be the one that
        # announces the hour: whether it was made is asked of the table.
        self.open_at_kill = {}

    async def open(self, engines):
        """Take a client over each of the engines."""
        self.repos = [
            await Repository.builder().clock(self.clock).over(engine) for engine in engines
        ]
        self.limiters = [RateLimiter(repo) for repo in self.repos]
        await self.repos[0].set_system_defaults(VARIANTS[0])
        await self.repos[0].create_entity(PARENT)
        for entity in self.entities[:CHILDREN]:
            await self._create(entity)

    async def _create(self, entity):
        await self.repos[0].create_entity(entity, parent_id=PARENT, cascade=True)

    # --- consumption

    async def hour(self, consumptions, between=None):
        """Consume that often within one hour, with changes in between."""
        for part in range(ROUNDS):
            share = consumptions // ROUNDS + (part < consumptions % ROUNDS)
            each = [share // CLIENTS + (number < share % CLIENTS) for number in range(CLIENTS)]
            changes = [self._reshape() for _ in range(RESHAPED)]
            if part == 1:
                changes.append(self._configure())
            await asyncio.gather(
                *(self._run(limiter, n) for limiter, n in zip(self.limiters, each, strict=True)),
                *changes,
            )
            await self._delete()
            if between is not None:
                await between()

    def next_hour(self, count=1):
        """Move on; leases that are held end in the new hour."""
        self.clock.set((self.clock() // HOUR_MS + count) * HOUR_MS + self.chance.randint(0, 5000))

    async def end_held(self):
        held, self.held = self.held, []
        for stack, entity, lease in held:
            back = self.chance.randint(1, 3)
            await lease.adjust(rpm=-back)
            self._count(entity, {"rpm": -back})
            await stack.aclose()

    async def _run(self, limiter, count):
        while count:
            self.clock.advance(ms=self.chance.randint(0, 3))
            size = min(count, self.chance.randint(1, self.burst))
            entity = self.chance.choice(self.entities)
            if size == 1:
                await self._consume(limiter, entity)
            else:
                await asyncio.gather(*(self._consume(limiter, entity) for _ in range(size)))
            count -= size

    async def _consume(self, limiter, entity):
        chance = self.chance
        amounts = {"rpm": chance.randint(1, 9), "tpm": chance.choice((0, 0, 500))}
        kind = chance.randrange(20)
        self._count(entity, {}, admitted=1)
        if kind == 0:
            try:
                async with limiter.acquire(entity, API, amounts):
                    raise Failure
            except Failure:
                return
        if kind == 1 and len(self.held) < 2 * CLIENTS:
            stack = AsyncExitStack()
            lease = await stack.enter_async_context(limiter.acquire(entity, API, amounts))
            self.held.append((stack, entity, lease))
            self._count(entity, amounts)
            return
        change = chance.choice((-1, 4)) if kind < 5 else 0
        async with limiter.acquire(entity, API, amounts) as lease:
            if change:
                await lease.adjust(rpm=change)
        self._count(entity, amounts)
        self._count(entity, {"rpm": change})

    def _count(self, entity, amounts, admitted=0):
        hour = self.clock() // HOUR_MS
        cascades = entity in self.entities[:CHILDREN]
        for bucket in (entity, PARENT) if cascades else (entity,):
            self.admitted[bucket, hour] += admitted
            for name, amount in amounts.items():
                self.used[bucket, hour, name] += amount
                if bucket == PARENT:
                    self.through[bucket, hour, name] += amount

    # --- changes

    async def _configure(self):
        self.counts["re-bases"] += 1
        await self.chance.choice(self.repos).set_system_defaults(self.chance.choice(VARIANTS))

    async def _reshape(self):
        """Split a bucket, or merge it again."""
        repo, entity = self.chance.choice(self.repos), self.chance.choice(self.entities[:RESHAPED])
        resharder = repo._context.engine.buckets.resharder  # noqa: SLF001 - below the API
        bucket_id, deadline = BucketId(repo.namespace_id, entity, API), Deadline(10)
        if self.chance.random() < 0.5:
            shard = self.chance.choice((Shard(0, 1), Shard(0, 2), Shard(1, 2)))
            done = await resharder.split(bucket_id, shard, self.clock, deadline)
            self.counts["splits"] += done
            return
        charging = repo.charging
        resolved = await charging.resolve(entity, API, charging.clock())
        for shard in (Shard(0, 4), Shard(1, 4), Shard(0, 2)):
            done = await resharder.merge(bucket_id, shard, resolved.in_force, self.clock, deadline)
            self.counts["merges"] += done

    async def _delete(self):
        """Delete a few entities while nothing is consumed; children are created again."""
        for entity in self.chance.sample(self.entities, 3):
            await self.repos[0].delete_entity(entity)
            self.counts["deletions"] += 1
            if entity in self.entities[:CHILDREN]:
                await self._create(entity)

    # --- checks

    async def check(self, *, first_hour=0, entities=None):
        """Compare queries with the ledger: of all entities, or a few, of resource and namespace."""
        for repo in self.repos:
            await written_later(repo)
        reader = self.chance.choice(self.repos)
        ledger = self._windows_of(first_hour)
        every = list(dict.fromkeys(entity for entity, _ in self.admitted))
        if entities is not None:
            every = self.chance.sample(every, min(entities, len(every)))
        start = iso_from_ms(first_hour * HOUR_MS)
        for entity in every:
            shown = _by_start(await _windows(reader, entity, API, "hourly", start))
            for key in [key for key in ledger if key[0] == entity]:
                _compare(key, ledger[key], shown.get(key))
        for resource in (API, None):
            for length in (1, DAY):
                await self._check_all(reader, resource, length, first_hour)

    async def _check_all(self, reader, resource, length, first_hour):
        """Compare every window of a resource or namespace, and their sums."""
        window_type = "hourly" if length == 1 else "daily"
        start = iso_from_ms(first_hour // length * length * HOUR_MS)
        shown = _by_start(await _windows(reader, None, resource, window_type, start))
        unannounced = {key for key, has_row in self.open_at_kill.items() if not has_row()}
        ledger = self._windows_of(first_hour // length * length, length, unannounced)
        assert shown.keys() <= ledger.keys()
        for key, wanted in ledger.items():
            _compare(key, wanted, shown.get(key))
        summary = await reader.get_usage_summary(
            resource=resource, window_type=window_type, start_time=start
        )
        assert summary.snapshot_count == len(shown)
        for name in ("rpm", "tpm"):
            through = sum(each.through_children.get(name, 0) for each in shown.values())
            total = sum(each.counters.get(name, 0) for each in shown.values())
            assert summary.through_children.get(name, 0) == through
            assert summary.total.get(name, 0) == total - through

    def _windows_of(self, first_hour, length=1, without=()):
        """The ledger by entity and first hour of each window: limits, parts through children."""
        windows = {}

        def add(entity, hour, place, amount):
            if hour >= first_hour and (entity, hour) not in without:
                sums = windows.setdefault((entity, hour - hour % length), Counter())
                sums[place] += amount

        for (entity, hour), count in self.admitted.items():
            add(entity, hour, "events", count)
        for part, amounts in (("used", self.used), ("through", self.through)):
            for (entity, hour, name), amount in amounts.items():
                add(entity, hour, (part, name), amount)
        return windows


def _compare(key, wanted, window):
    for name in ("rpm", "tpm"):
        used = window.counters.get(name, 0) if window else 0
        assert used == wanted["used", name], (key, name, wanted, window)
        through = window.through_children.get(name, 0) if window else 0
        assert through == wanted["through", name], (key, name, wanted, window)
    assert (window.total_events if window else 0) == wanted["events"], (key, wanted, window)


async def _windows(repo, entity, resource, window_type, start_time):
    windows, next_key = [], None
    while True:
        page, next_key = await repo.get_usage_snapshots(
            entity, resource, window_type, start_time=start_time, limit=500, next_key=next_key
        )
        windows += page
        if next_key is None:
            return windows


def _by_start(windows):
    shown = {(each.entity_id, ms_from_iso(each.window_start) // HOUR_MS): each for each in windows}
    assert len(shown) == len(windows), "a window is shown twice"
    return shown


class Deliveries:
    """Hands records to the stream processor; some of its writes fail if ``failing in part``."""

    def __init__(self, calls, seed=0):
        self._calls, self._chance, self._writes = calls, random.Random(seed), 0
        self._fails = False
        self._processor = Processor(self)
        self.hours = 0

    @property
    def table(self):
        return self._calls.table

    def call(self, operation, body):
        self._writes += 1
        if self._fails and operation != "GetItem" and self._writes % FAILING_EVERY == 0:
            if self._chance.random() < 0.5:
                self._calls.call(operation, body)
            raise NoAnswer("it took too long")
        return self._calls.call(operation, body)

    def deliver(self, records, mode):
        """Deliver all records that the filter lets through, in one of the modes."""
        records = [record for record in records if _is_wanted(record)]
        batches = [records[at : at + BATCH] for at in range(0, len(records), BATCH)]
        if mode == "doubled":
            batches = [batch for batch in batches for _ in range(2)]
        if mode == "shuffled":
            self._chance.shuffle(batches)
            for batch in batches:
                self._chance.shuffle(batch)
        for batch in batches:
            self._deliver(batch, fails=mode == "failing in part")

    def _deliver(self, batch, *, fails):
        while batch:
            self._fails = fails
            result = self._processor.process(batch, Log(output=lambda line: None), float("inf"))
            self.hours += result.snapshots_updated
            assert not result.skipped, result.errors
            failed = {each["itemIdentifier"] for each in result.response()["batchItemFailures"]}
            numbers = [record["dynamodb"]["SequenceNumber"] for record in batch]
            at = min((numbers.index(number) for number in failed), default=len(batch))
            fails = fails and at > 0  # the same record does not fail for ever
            batch = batch[at:]


def _is_wanted(record):
    return record["dynamodb"].get("NewImage", {}).get("op", {}).get("S", "").startswith("~")

"""A random history: clients of one table, with all that may go wrong, and checks of every write."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sim.virtual_time import START_S, VirtualTime, virtual_time
from tests.support.dynamodb.model.admission import AdmissionCheck
from tests.support.dynamodb.model.aggregator import MODES, Aggregator
from tests.support.dynamodb.model.client import FAULTS, ModelClient, Network
from tests.support.dynamodb.model.ledger import NOTHING, Bucket, Ledger, Used, Wrong
from tests.support.dynamodb.model.pauses import PauseCheck
from tests.support.dynamodb.model.quotas import QuotaCheck
from tests.support.dynamodb.model.table import ModelTable
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository
from zae_limiter._async.engines.dynamodb.engine import DynamoEngine
from zae_limiter._async.engines.dynamodb.open import _prepare
from zae_limiter.admission.shards.tree import Shard
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.hooks import AcquireEvent, RejectEvent
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.usage import UsageSnapshot
from zae_limiter.settings import Settings
from zae_limiter.tallies import STORE_AFTER_S

HOUR_S = 3600.0
CHILD, OTHER, PARENT = "key-1", "key-2", "org"
RESOURCES = ("api", "chat")
PATIENCE_S = 5.0
DAY = 24
DAY_S = DAY * HOUR_S
RETENTION_DAYS = 1
# The last one is longer than any item is kept.
LONG_GAPS_S = (600.0, HOUR_S, 3 * HOUR_S, 3 * HOUR_S, 2 * DAY_S, 12 * DAY_S)
THEME_WEIGHT = 6
MOST_ENDINGS = 100  # failures after a failure


async def prepared_engine(client: ModelClient, settings: Settings) -> DynamoEngine:
    """Open an engine over a client of the model, as a repository would."""
    engine = DynamoEngine(client, settings)  # type: ignore[arg-type]
    await _prepare(client, engine, settings)  # type: ignore[arg-type]
    return engine


class Failure(Exception):
    """What goes wrong in a block."""


class Ends:
    """Notes how the acquires of one client ended, as a program would that watches them."""

    def __init__(self, intended: Counter[tuple[str, str, str]]) -> None:
        self._intended = intended

    def on_acquire(self, event: AcquireEvent) -> None:
        self._intended[event.entity_id, event.resource, "waited"] += event.waited_s > 0

    def on_reject(self, event: RejectEvent) -> None:
        if not event.is_acquire:
            return
        entity_id, resource = event.entity_id, event.resource
        self._intended[entity_id, resource, "waited"] += event.waited_s > 0
        refusing = {each.entity_id for each in event.violations}
        for each in refusing | {entity_id}:
            self._intended[each, resource, "rejected"] += 1
            self._intended[each, resource, "of_children"] += each != entity_id


@dataclass(frozen=True)
class Profile:
    """What a history may contain. ``None`` draws it from the seed."""

    clients: int | None = None
    skew_s: float | None = None
    faults: float | None = None
    steps: int | None = None
    debts: bool | None = None
    cascade: bool | None = None
    reshapes: bool | None = None  # splits and merges at will
    changes: bool | None = None  # of limits, and limits of calls
    removals: bool | None = None  # deletions of entities, crashes
    lag: bool | None = None
    aggregator: str | None = None
    theme: str | None = None  # a kind of step that comes more often
    fault_kinds: tuple[str, ...] | None = None
    watched: bool | None = None  # hooks note how acquires end
    waits: bool | None = None  # some acquires have a timeout, and so reserve
    pauses: bool = False
    quotas: bool = False  # on tokens, instead of rates

    def drawn(self, chance: random.Random) -> Profile:
        flags = ("debts", "cascade", "reshapes", "changes", "removals", "lag")
        drawn: dict[str, Any] = {name: chance.random() < 0.5 for name in flags}
        drawn |= {
            "clients": chance.randint(1, 6),
            "skew_s": chance.choice((0.0, 0.0, 2.0, 3 * HOUR_S)),
            "faults": chance.choice((0.0, 0.03, 0.1, 0.3)),
            "steps": chance.choice((15, 30, 60)),
            "aggregator": chance.choice((MODES[0], *MODES)),
            "fault_kinds": chance.choice((FAULTS, tuple(chance.sample(FAULTS, 2)))),
            "theme": chance.choice(("", "", "delete", "split", "merge", "configure", "query")),
            "watched": chance.random() < 0.5,
            "waits": chance.random() < 0.4,
        }
        given = {name: value for name, value in vars(self).items() if value is not None}
        return replace(self, **{**drawn, **given})


@dataclass
class Member:
    """One client process of the fleet."""

    client: ModelClient
    repo: Repository
    limiter: RateLimiter
    skew_s: float
    clock: Callable[[], int]
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)


class History:
    """Runs one history; ``trace`` says what was done, for the report of a failure.

    ``table`` makes the table; the tests of planted defects give a defective one.
    """

    def __init__(
        self,
        seed: int,
        profile: Profile | None = None,
        *,
        table: Callable[..., ModelTable] = ModelTable,
    ) -> None:
        self.seed, self._make_table = seed, table
        self.chance = random.Random(seed)
        self.profile = (profile or Profile()).drawn(self.chance)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.intended: Counter[tuple[str, str, str]] = Counter()
        self.members: list[Member] = []
        self.dead: list[Member] = []
        self.leaving: list[Member] = []

    def run(self) -> History:
        of_day_s = self.chance.choice((0.0, 21 * HOUR_S, 23 * HOUR_S))  # days end soon, too
        start_s = START_S + of_day_s + self.chance.choice((0.0, 1800.0, HOUR_S - 5.0))
        with virtual_time(self.seed, start_s) as self.loop:
            try:
                self.loop.run_until_complete(self._run())
            except BaseException as error:
                error.add_note(f"seed {self.seed}, {self.profile}\n" + "\n".join(self.trace[-80:]))
                raise
            finally:
                self._end()
        return self

    # --- the frame

    async def _run(self) -> None:
        self._prepare()
        await self._open_fleet()
        await self._configure_first()
        self.network.rate = self.profile.faults or 0.0
        self.aggregator = self._deliveries()
        for _ in range(self.profile.steps or 0):
            await self._step()
        await self._come_to_rest()
        await self._check_at_rest()

    def _deliveries(self) -> Aggregator | None:
        mode = self.profile.aggregator
        if mode is None or mode == "absent":
            return None
        chance = random.Random(f"{self.seed} stream")
        return Aggregator(self.table, self.loop, chance, mode)

    def _prepare(self) -> None:
        chance, loop = self.chance, self.loop
        lag_s = chance.choice((0.05, 1.0)) if self.profile.lag else 0.0
        self.table = self._make_table(lag_s=lag_s, seed=self.seed)
        self.network = Network(random.Random(f"{self.seed} network"))
        self.network.slow_s = chance.choice((0.001, 0.02, 0.3))
        self.network.kinds = self.profile.fault_kinds or FAULTS
        # What calls hold of quotas is in no hour before it is settled: the ledger cannot follow it.
        retention_s = None if self.profile.quotas else RETENTION_DAYS * DAY_S
        self.ledger = Ledger(self.table, retention_s)
        self.admissions = AdmissionCheck()
        if not self.profile.debts and not self.profile.skew_s and not self.profile.waits:
            self.table.listeners.append(self.admissions.follow)
        self.pauses, self.quotas = PauseCheck(), QuotaCheck()
        self.table.listeners += [self.pauses.follow, self.quotas.follow]
        assert isinstance(loop, VirtualTime)

    async def _open_fleet(self) -> None:
        for _ in range(self.profile.clients or 1):
            self.members.append(await self.open())

    async def open(self, **settings: Any) -> Member:
        """Open a client, with a clock that may be wrong."""
        chance, loop = self.chance, self.loop
        skew_s = chance.uniform(-1, 1) * (self.profile.skew_s or 0.0)

        def clock() -> int:
            return int((loop.now_s + skew_s) * 1000)

        client = ModelClient(self.table, loop, self.network)
        rate, self.network.rate = self.network.rate, 0.0
        engine = await prepared_engine(
            client,
            Settings(
                clock=clock,
                config_cache_ttl=chance.choice((0, 60)),
                rejection_cache_ttl=chance.choice((0, 1)),
                max_shards=chance.choice((1, 8)) if not self.profile.reshapes else 8,
                bucket_ttl_multiplier=chance.choice((1, 7)),
                usage_retention_days=RETENTION_DAYS,
                **settings,
            ),
        )
        repo = await self._repository(engine, clock)
        self.network.rate = rate
        hooks = Ends(self.intended) if self.profile.watched else None
        return Member(client, repo, RateLimiter(repo, hooks=hooks), skew_s, clock)

    async def _repository(self, engine: DynamoEngine, clock: Callable[[], int]) -> Repository:
        return await Repository.builder().clock(clock).over(engine)

    def _end(self) -> None:
        self.table.listeners.clear()
        for member in (*self.members, *self.leaving, *self.dead):
            member.client.bury()
            ends = member.repo.charging.pending_ends
            self.loop.run_until_complete(ends.close(0))  # nothing repeats them any more
        for _ in range(MOST_ENDINGS):
            rest = asyncio.all_tasks(self.loop)
            if not rest:
                break
            with suppress(Exception):  # the first failure counts
                self.loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))

    # --- steps

    async def _step(self) -> None:
        kinds = self._kinds()
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        self.counts[kind] += 1
        member = self.chance.choice(self.members)
        self.note(f"{kind} by {self.members.index(member)}")
        await getattr(self, f"_{kind}")(member)
        await asyncio.sleep(self._gap_s())

    def _kinds(self) -> dict[str, int]:
        profile = self.profile
        kinds = {"acquire": 60, "burst": 12, "expire": 2}
        kinds |= {"top_up": 3, "reset": 1} if profile.quotas else {"query": 8}
        if profile.reshapes:
            kinds |= {"split": 8, "merge": 6}
        if profile.changes:
            kinds |= {"configure": 4}
        if profile.removals:
            kinds |= {"delete": 4, "crash": 3, "close": 2}
        if profile.pauses:
            kinds |= {"pause": 8, "lift": 1}
        if profile.theme in kinds:
            kinds[profile.theme] *= THEME_WEIGHT
        return kinds

    def _gap_s(self) -> float:
        chance, now_s = self.chance, self.loop.now_s
        how = chance.randrange(20)
        if how < 6:
            return 0.0
        if how < 12:
            return chance.random() * 0.05
        if how < 15:
            return chance.random() * 10
        if how < 18 and chance.random() < 0.9:  # the next border, or just before or after it
            border_s = (now_s // HOUR_S + 1) * HOUR_S
            return max(0.0, border_s - now_s + chance.uniform(-0.05, 0.05))
        # A process that has crashed goes on to renew its holds, twice a minute, and reaches nobody.
        longest = LONG_GAPS_S[:3] if self.profile.quotas else LONG_GAPS_S
        return chance.random() * chance.choice(longest)

    def spawn(self, member: Member, work: Coroutine[Any, Any, Any]) -> None:
        """Run in the background, as a task of that process."""
        task = self.loop.create_task(self._guarded(work))
        member.tasks.add(task)

    async def _guarded(self, work: Awaitable[Any]) -> None:
        """Let pass what callers of a limiter have to expect."""
        try:
            await work
        except RateLimitExceeded:
            self.counts["rejected"] += 1
        except Failure:
            self.counts["failed"] += 1
        except ZAELimiterError as error:
            self.counts[type(error).__name__] += 1

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.now_s - START_S:.3f} {text}")

    # --- what clients do

    async def _acquire(self, member: Member) -> None:
        self.spawn(member, self._lease(member))

    async def _burst(self, member: Member) -> None:
        for _ in range(self.chance.randint(2, 8)):
            self.spawn(member, self._lease(member))

    async def _lease(self, member: Member) -> None:
        chance = self.chance
        entity, resource = chance.choice((CHILD, CHILD, OTHER, PARENT)), chance.choice(RESOURCES)
        consume = self._amounts()
        limits = self._own_limits() if self.profile.changes and chance.random() < 0.1 else None
        held_s = chance.choice((0.0, 0.0, 0.0, 0.1, 30.0, 3000.0))
        ends, adjusted = chance.randrange(8), self._adjustment()
        more = {"rpm": 1} if chance.random() < 0.1 else None
        waits = self.profile.waits and chance.random() < 0.3
        timeout = chance.choice((0.5, 20.0, 100.0)) if waits else None
        self.note(
            f"  lease {entity} {resource} {consume} {limits} {held_s} {ends} {adjusted} {timeout}"
        )
        used = Counter(consume)
        acquire = member.limiter.acquire(entity, resource, consume, limits=limits, timeout=timeout)
        async with acquire as lease:
            self.counts["granted"] += 1
            self._intend(entity, resource, {"admitted": 1})
            try:
                if held_s:
                    await asyncio.sleep(held_s)
                if more is not None:
                    await lease.consume(**more)
                    used.update(more)
                if adjusted is not None:
                    await lease.adjust(**adjusted)
                    used.update(adjusted)
                if ends == 0:
                    raise Failure
            except BaseException:
                used.clear()
                raise
            finally:
                self._intend(entity, resource, used)

    def _intend(self, entity: str, resource: str, amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            self.intended[entity, resource, name] += amount
            if self.profile.cascade and entity == CHILD:
                self.intended[PARENT, resource, name] += amount

    def _amounts(self) -> dict[str, int]:
        chance = self.chance
        amounts = {"rpm": chance.choice((0, 1, 1, 2, 5, 30))}
        if chance.random() < 0.5:
            amounts["tpm"] = chance.choice((0, 1, 40, 300))
        return amounts

    def _adjustment(self) -> dict[str, int] | None:
        chance = self.chance
        how = chance.random()
        if how < 0.15:
            return {chance.choice(("rpm", "tpm")): -chance.choice((1, 3, 30))}
        if self.profile.debts and how < 0.4:
            return {chance.choice(("rpm", "tpm")): chance.choice((1, 3, 60, 2000))}
        return None

    def _own_limits(self) -> list[Limit]:
        return [
            Limit.custom("rpm", self.chance.choice((10, 50)), 10, 60),
            Limit.custom("tpm", 400, 100, 60),
        ]

    async def _configure_first(self) -> None:
        repo = self.members[0].repo
        await repo.set_system_defaults(self._limits())
        await self._create(self.members[0])
        await asyncio.sleep(2)  # eventually consistent reads show it by now

    async def _write_later(self) -> None:
        """Wait for the writes that no caller waits for."""
        for member in (*self.members, *self.leaving):
            await member.repo._context.engine._context.later.drain(PATIENCE_S)  # noqa: SLF001

    async def _create(self, member: Member) -> None:
        if self.profile.cascade:
            await member.repo.create_entity(PARENT)
            await member.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)

    def _limits(self) -> list[Limit]:
        chance = self.chance
        return [
            Limit.custom("rpm", chance.choice((20, 60, 100)), chance.choice((1, 7, 60)), 60),
            self._quota()
            if self.profile.quotas
            else Limit.custom("tpm", chance.choice((300, 1000)), chance.choice((5, 333)), 60),
        ]

    def _quota(self) -> Limit:
        amount, per = self.chance.choice((700, 3000)), self.chance.choice(("hour", "day", "year"))
        return Limit.quota("tpm", amount, per=per, hold_ttl=self.chance.choice((60, 3600)))

    async def _configure(self, member: Member) -> None:
        chance = self.chance
        limits = self._limits()
        kind = chance.random()
        if kind < 0.3:
            limits = limits[:1]
        elif kind < 0.5:  # takes the number of a limit that was dropped
            limits[1] = Limit.custom("cpm", 100, 50, 60)
        how = chance.randrange(4)
        if how == 0:
            work = member.repo.set_system_defaults(limits)
        elif how == 1:
            work = member.repo.set_resource_defaults(chance.choice(RESOURCES), limits)
        elif how == 2:
            work = member.repo.set_limits(CHILD, limits, chance.choice(RESOURCES))
        else:
            work = member.repo.delete_limits(CHILD, chance.choice(RESOURCES))
        self.spawn(member, work)

    async def _delete(self, member: Member) -> None:
        entity = self.chance.choice((CHILD, OTHER, PARENT))
        self.note(f"  {entity}")
        self.spawn(member, member.repo.delete_entity(entity))
        if self.chance.random() < 0.5:
            self.spawn(member, self._again(member, entity))

    async def _again(self, member: Member, entity: str) -> None:
        await asyncio.sleep(self.chance.random())
        parent = {"parent_id": PARENT, "cascade": True} if entity == CHILD else {}
        await member.repo.create_entity(entity, **parent)

    async def _pause(self, member: Member) -> None:
        entity, resource = self._any_bucket()
        seconds = self.chance.choice((0.5, 3, 30, 300, 600))
        self.note(f"  {entity} {resource} {seconds}")
        self.spawn(member, member.limiter.pause(entity, resource, seconds))

    async def _lift(self, member: Member) -> None:
        entity, resource = self._any_bucket()
        self.note(f"  {entity} {resource}")
        self.spawn(member, self._lifted(member, entity, resource))

    async def _lifted(self, member: Member, entity: str, resource: str) -> None:
        with self.pauses.lifting(entity, resource):
            await member.limiter.pause(entity, resource, 0)

    async def _top_up(self, member: Member) -> None:
        entity, resource = self._any_bucket()
        added = {"tpm": self.chance.choice((1, 40, 500))}
        self.note(f"  {entity} {resource} {added}")
        self.spawn(member, member.repo.top_up(entity, resource, added))

    async def _reset(self, member: Member) -> None:
        entity, resource = self._any_bucket()
        self.note(f"  {entity} {resource}")
        self.quotas.renew(entity, resource)
        self.spawn(member, member.repo.reset_bucket(entity, resource))

    def _any_bucket(self) -> tuple[str, str]:
        return self.chance.choice((CHILD, OTHER, PARENT)), self.chance.choice(RESOURCES)

    async def _split(self, member: Member) -> None:
        place = self._any_shard()
        if place is None:
            return
        bucket_id, shard = place
        deadline = Deadline(PATIENCE_S)
        resharder = member.repo._context.engine.buckets.resharder  # noqa: SLF001
        self.note(f"  {bucket_id} {shard}")
        self.spawn(member, resharder.split(bucket_id, shard, member.clock, deadline))

    async def _merge(self, member: Member) -> None:
        place = self._any_shard()
        if place is None or place[1].n == 1:
            return
        bucket_id, shard = place
        survivor = shard if shard.survives else shard.sibling
        self.note(f"  {bucket_id} {survivor}")
        self.spawn(member, self._merged(member, bucket_id, survivor))

    async def _merged(self, member: Member, bucket_id: BucketId, shard: Shard) -> None:
        charging = member.repo.charging
        resolved = await charging.resolve(bucket_id.entity_id, bucket_id.resource, charging.clock())
        resharder = member.repo._context.engine.buckets.resharder  # noqa: SLF001
        deadline = Deadline(PATIENCE_S)
        await resharder.merge(bucket_id, shard, resolved.in_force, member.clock, deadline)

    def _any_shard(self) -> tuple[BucketId, Shard] | None:
        items = [item for item in self.table.items() if "/BUCKET#" in item["PK"]["S"]]
        if not items:
            return None
        item = self.chance.choice(items)
        namespace, _, rest = item["PK"]["S"].partition("/")
        _, entity, resource, number = rest.split("#")
        shard = Shard(int(number), int(item["n"]["N"]))
        return BucketId(namespace, entity, resource), shard

    async def _expire(self, member: Member) -> None:
        self.counts["expired"] += self.table.expire(self.loop.now_s)

    async def _crash(self, member: Member) -> None:
        """A kill -9, and a new process in its place."""
        member.client.die()
        self.members.remove(member)
        self.dead.append(member)
        self.members.append(await self.open())

    async def _close(self, member: Member) -> None:
        """Close a client once its calls are done; another one takes its place."""
        self.members.remove(member)
        self.members.append(await self.open())
        self.leaving.append(member)
        self.spawn(member, self._closed(member, list(member.tasks)))

    async def _closed(self, member: Member, tasks: list[asyncio.Task[Any]]) -> None:
        await asyncio.gather(*tasks)
        await member.repo.close()

    # --- queries

    async def _query(self, member: Member) -> None:
        self.spawn(member, self._check_query(member, exact=False))

    async def _check_query(
        self,
        member: Member,
        *,
        exact: bool,
        entity: str | None = None,
        resource: str | None = None,
        length: int = 1,
    ) -> None:
        """Compare what a query says with what can have been there while it ran.

        ``length`` is that of the windows, in hours: 1 or 24.
        """
        if not exact:
            length = self.chance.choice((1, 1, DAY))
            entity = self.chance.choice((CHILD, OTHER, PARENT, None))
            resource = self.chance.choice((*RESOURCES, *RESOURCES, None))
        # Other queries than those of one bucket depend on indexes and on announcements.
        is_complete = entity is not None and resource is not None
        if not is_complete:
            await self._write_later()
        since = len(self.table.stream)
        # At rest (``exact``) every announcement must have been made.
        unannounced = set() if is_complete or exact else self._unannounced()
        limit = self.chance.choice((1, 3, 100))
        windows, next_key = [], None
        while True:
            page, next_key = await member.repo.get_usage_snapshots(
                entity,
                resource,
                "hourly" if length == 1 else "daily",
                limit=limit,
                next_key=next_key,
            )
            windows += page
            if next_key is None:
                break
        self.counts["queries"] += 1
        self.note(f"  query {entity} {resource} since {since} to {len(self.table.stream)}")
        shown = {
            (each.entity_id, each.resource, hour_of(each.window_start)): each for each in windows
        }
        if len(shown) < len(windows):
            raise Wrong(f"an hour is shown twice: {windows}")
        # Those are lost with a process; over a slow network a first write may be unknown, too.
        is_lossy = self.profile.faults or self.dead or self.network.slow_s > 0.1
        is_complete |= not self.profile.lag and not is_lossy
        for bucket in list(self.ledger.used):
            if entity in (None, bucket[1]) and resource in (None, bucket[2]):
                is_known = is_complete and bucket[1:] not in unannounced
                self._compare(bucket, since, shown, length, is_complete=is_known)
        if shown and not exact:
            for (_, _, hour), window in shown.items():
                if not self._is_expired(hour):
                    raise Wrong(f"{window} is of no bucket")

    def _unannounced(self) -> set[tuple[str, str]]:
        """Return the buckets whose row lacks an origin: its client still waits for the answer.

        A query that finds buckets by their rows cannot see such an origin yet.
        """
        rows, running = set(), []
        for item in self.table.items():
            partition, sort = item["PK"]["S"], item["SK"]["S"]
            if sort.startswith("#USAGE#"):
                entity = partition.partition("/ENTITY#")[2]
                _, _, resource, day, _ = sort.split("#")
                rows |= {(entity, resource, day, name) for name in item if name.startswith("o_")}
            elif "/BUCKET#" in partition and "o" in item:
                _, entity, resource, _ = partition.split("#")
                running.append((entity, resource, int(item["h"]["N"]), f"o_{item['o']['S']}"))
        return {
            (entity, resource)
            for entity, resource, hour, origin in running
            if (entity, resource, _day_text(hour), origin) not in rows
        }

    def _is_expired(self, hour: int) -> bool:
        """Whether the day of an hour is past its retention."""
        return (hour // DAY + 1 + RETENTION_DAYS) * DAY_S <= self.loop.now_s

    def _compare(
        self, bucket: Bucket, since: int, shown: dict[Any, Any], length: int, *, is_complete: bool
    ) -> None:
        _, entity, resource = bucket
        for hour, (low, high) in self.ledger.bounds(bucket, since, length).items():
            window = shown.pop((entity, resource, hour), None)
            if self._is_expired(hour):
                continue
            used = NOTHING if window is None else used_in(window)
            for name in low.net.keys() | high.net.keys() | used.net.keys():
                numbers = (low.net[name], used.net[name], high.net[name])
                self._between(bucket, hour, name, numbers, is_complete=is_complete)
            numbers = (1000 * low.admitted, 1000 * used.admitted, 1000 * high.admitted)
            self._between(bucket, hour, "admitted", numbers, is_complete=is_complete)
            for name in low.through.keys() | high.through.keys() | used.through.keys():
                numbers = (low.through[name], used.through[name], high.through[name])
                self._between(bucket, hour, f"through {name}", numbers, is_complete=is_complete)

    def _between(
        self,
        bucket: Bucket,
        hour: int,
        name: str,
        numbers: tuple[int, int, int],
        *,
        is_complete: bool,
    ) -> None:
        low, used, high = numbers
        if not is_complete:  # an hour, or one of its origins, may be missing
            return
        # Reports show whole tokens; shards share debts by fractions, perhaps in different hours.
        if not low <= used <= high:
            raise Wrong(f"{bucket} {hour} {name}: {used} is shown, {low} to {high} was used")

    # --- the end

    async def _come_to_rest(self) -> None:
        """Nothing is under way any more, late originals included."""
        self.network.rate = 0.0
        tasks = [task for each in (*self.members, *self.leaving) for task in each.tasks]
        if tasks:
            await asyncio.gather(*tasks)
        await asyncio.sleep(3 * STORE_AFTER_S)  # counts are stored by then
        while self.network.open_late or self._pending_ends():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(HOUR_S)
        if self.aggregator is not None:
            self.aggregator.finish()
            await asyncio.sleep(4 * HOUR_S)  # calls of the processor may be late
        await asyncio.sleep(self.network.slow_s * 4 + 5)

    def _pending_ends(self) -> int:
        """Return how many ends of blocks are stored later, since their writes have failed."""
        return sum(each.repo.pending_settlements for each in self.members)

    async def _check_at_rest(self) -> None:
        if self.table.invalid:
            raise Wrong(f"refused for good: {self.table.invalid[0]}")
        for bucket in list(self.ledger.consumed):
            self.ledger.check(bucket, self.loop.now_s)
        if self.aggregator is not None:
            self._check_cleared()
        self._check_intended()
        if self.profile.quotas:
            return
        self.profile = replace(self.profile, skew_s=0.0)
        reader = await self.open()
        self.members.append(reader)
        for length in (1, DAY):
            for _, entity, resource in list(self.ledger.used):
                await self._check_query(
                    reader, exact=True, entity=entity, resource=resource, length=length
                )
            wider = self.chance.choice(((CHILD, None), (None, RESOURCES[0]), (None, None)))
            await self._check_query(
                reader, exact=True, entity=wider[0], resource=wider[1], length=length
            )

    def _check_cleared(self) -> None:
        for item in self.table.items():
            if "ph" in item:
                raise Wrong(f"a finished hour was not cleared: {item}")

    def _check_intended(self) -> None:
        """What callers got is what was counted, where nothing was lost."""
        errors = {"NoAnswer", "NotSent", "ServerFault", "Throttled", "RateLimiterUnavailable"}
        errors |= {"InfrastructureError"}
        profile = self.profile
        if profile.removals or profile.changes or profile.faults or errors & self.counts.keys():
            return
        counted: Counter[tuple[str, str, str]] = Counter()
        for bucket, hours in self.ledger.used.items():
            for used in hours.values():
                for name, amount in used.net.items():
                    counted[bucket[1], bucket[2], name] += amount
                counted[bucket[1], bucket[2], "admitted"] += 1000 * used.admitted
                if profile.watched:
                    for name in ("rejected", "of_children", "waited"):
                        counted[bucket[1], bucket[2], name] += 1000 * getattr(used, name)
        for place in counted.keys() | self.intended.keys():
            if counted[place] != 1000 * self.intended[place]:
                raise Wrong(f"{place}: {counted[place]} counted, {self.intended[place]} intended")


def hour_of(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) // int(HOUR_S)


def _day_text(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR_S, UTC).date().isoformat()


def used_in(window: UsageSnapshot) -> Used:
    """A window of a report in the ledger's terms."""
    net = Counter({name: 1000 * amount for name, amount in window.counters.items()})
    through = Counter({name: 1000 * amount for name, amount in window.through_children.items()})
    of_children = window.rejected_through_children
    return Used(
        net,
        through,
        window.total_events,
        window.rejected,
        of_children,
        window.waited,
        window.shadowed,
        window.rejected_as_further,
        window.events_elsewhere,
    )

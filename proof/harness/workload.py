"""Random callers of our own limiter: every operation is noted before it begins and when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from random import Random
from typing import Any

from proof.harness.diary import Diary, now_ns
from proof.harness.limits import (
    BRIEF,
    BUDGET,
    CHILDREN,
    HELD,
    NANO,
    NARROW,
    PLAIN,
    QUOTA,
    RESOURCE,
    SHARDED,
    TUNED,
    TUNINGS,
    TURNED,
    TURNINGS,
    WAIT_S,
    WAITING,
    Bucket,
    rate_terms,
)
from proof.harness.plan import CONFIG_CACHE_S, DYNAMODB, Plan
from zae_limiter import (
    NamespaceNotFoundError,
    PermissionDenied,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    ValidationError,
)
from zae_limiter.clock import Deadline
from zae_limiter.items.stored.keys import BucketId

PAUSE_S = 0.004
CLOCKS_EVERY_S = 0.25
TUNED_EVERY_S = 3.0  # longer than a change is in doubt
TURNED_EVERY_S = 0.7
SHAPED_EVERY_S = 0.25
PURGED_EVERY_S = 1.5
GOES_ON_S = 0.3  # of a call that has settled: long enough to be killed meanwhile
BRIEF_S = 0.4  # the time for which one expiring bucket is used
OTHER_NAMESPACE = "purged"
# The store did not answer, or its file may only be read for now.
NO_DECISION = (RateLimiterUnavailable, PermissionDenied)
# After a change all processes use the new limits when their caches have expired; with time to
# spare for a call that has read the cache just before.
KNOWN_WITHIN_NS = int((CONFIG_CACHE_S + 1) * NANO)
ENDINGS = (
    *("plain",) * 5,
    *("more", "less", "settle", "now", "release", "consume", "raise", "left", "too much"),
)


class BlockFailed(Exception):
    """What goes wrong in a block."""


class Workload:
    """The callers of one process."""

    def __init__(self, plan: Plan, number: int, diary: Diary, repo: Repository) -> None:
        self._plan, self._number, self._diary, self._repo = plan, number, diary, repo
        self._limiter = RateLimiter(repo)
        self._ends = PendingEnds(diary, repo)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Work until told to stop; all leases end before this does."""
        ends = time.monotonic() + self._plan.seconds
        seed = f"{self._plan.seed}.{self._diary.process}"
        async with asyncio.TaskGroup() as group:
            for task in range(self._plan.tasks):
                group.create_task(self._until(ends, self._call, Random(f"{seed}.{task}")))
            group.create_task(self._every(ends, CLOCKS_EVERY_S, self._read_clocks))
            if self._number == 0:
                group.create_task(self._every(ends, TUNED_EVERY_S, self._tune))
                group.create_task(self._every(ends, TURNED_EVERY_S, self._turn))
                group.create_task(self._every(ends, PURGED_EVERY_S, self._purge))
            if self._plan.subject == DYNAMODB:
                chance = Random(f"{seed}.shape")
                group.create_task(self._every(ends, SHAPED_EVERY_S, lambda: self._reshape(chance)))
        self._ends.look()

    async def _until(self, ends: float, work: Any, chance: Random) -> None:
        while time.monotonic() < ends and not self._stopped.is_set():
            await work(chance)
            await asyncio.sleep(chance.random() * PAUSE_S)

    async def _every(self, ends: float, seconds: float, work: Any) -> None:
        while time.monotonic() < ends and not self._stopped.is_set():
            await work()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), seconds)

    # --- one call

    async def _call(self, chance: Random) -> None:
        bucket = self._some_bucket(chance)
        amounts = _some_amounts(bucket, chance)
        timeout = chance.random() * WAIT_S if bucket is WAITING and chance.random() < 0.7 else None
        lease = Lease(self._diary, self._repo, self._ends, bucket, amounts, timeout)
        acquire = self._limiter.acquire(
            bucket.entity, RESOURCE, _written(bucket, amounts), timeout=timeout
        )
        leaves_s = chance.random() * 0.005 if chance.random() < 0.03 else None
        if await lease.enter(acquire, leaves_s):
            await self._block(lease, chance)

    def _some_bucket(self, chance: Random) -> Bucket:
        kinds: list[Bucket] = [*PLAIN * 2, NARROW, WAITING, *CHILDREN, TUNED, BUDGET, BUDGET, QUOTA]
        kinds += [TURNED, TURNED]
        if self._plan.subject == DYNAMODB:
            kinds += [SHARDED, SHARDED]
        if self._plan.has_expiring_buckets:  # one after the other, so that the others expire
            kinds += [BRIEF[int(time.monotonic() / BRIEF_S) % len(BRIEF)]] * 6
        return chance.choice(kinds)

    async def _block(self, lease: Lease, chance: Random) -> None:
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.02)
        ending = chance.choice(ENDINGS)
        bucket = lease.bucket
        if bucket in HELD and ending in ("release", "consume"):
            ending = "settle"  # a hold is settled once
        if bucket is TURNED and ending in ("more", "settle"):
            ending = "less"  # after a change of calendar a debt is usage alone
        if bucket is SHARDED and ending in ("more", "consume", "settle", "now"):
            ending = "less"  # debts of shards have a bound of their own
        await lease.end(ending, chance)

    # --- clocks, limits, shapes

    async def _read_clocks(self) -> None:
        self._ends.look()
        before = now_ns()
        host, limiter = time.time_ns(), self._repo._context.clock()  # noqa: SLF001 - the clock in use
        after = now_ns()
        if after - before < NANO // 1000:
            self._diary.tell(
                "clock", at=before, host=host - before, limiter=limiter * 1_000_000 - before
            )

    async def _tune(self) -> None:
        """Change limits; until it is known by all, either may be in force."""
        turn = int(time.monotonic() / TUNED_EVERY_S) % 2
        (limit,) = TUNINGS[turn]
        terms, began = rate_terms(TUNED, limit), now_ns()
        self._diary.tell(
            "limit", **terms, since=[began, None]
        )  # if the process is killed meanwhile
        ends: int | None = None
        try:
            await self._repo.set_limits(TUNED.entity, [limit], RESOURCE)
            ends = now_ns() + KNOWN_WITHIN_NS
        except NO_DECISION:
            pass  # if it still arrives, then before the next change
        finally:
            self._diary.tell("limit", **terms, since=[began, ends])

    async def _turn(self) -> None:
        """Change the calendar of a quota, or change it back: what was used stays used."""
        turn = int(time.monotonic() / TURNED_EVERY_S) % 2
        with suppress(*NO_DECISION):
            await self._repo.set_limits(TURNED.entity, [TURNINGS[turn]], RESOURCE)

    async def _purge(self) -> None:
        """Use the same buckets in another namespace, and delete it with all that it holds.

        Nothing of it is noted: the history must be the same as without the other namespace.
        """
        with suppress(*NO_DECISION, NamespaceNotFoundError, RateLimitExceeded):
            namespace_id = await self._repo.register_namespace(OTHER_NAMESPACE)
            limiter = RateLimiter(await self._repo.namespace(OTHER_NAMESPACE))
            for bucket in PLAIN:
                amounts = {limit.name: limit.capacity for limit in bucket.limits}
                async with limiter.acquire(bucket.entity, RESOURCE, amounts, list(bucket.limits)):
                    pass
            await self._repo.delete_namespace(OTHER_NAMESPACE)
            await self._repo.purge_namespace(namespace_id)

    async def _reshape(self, chance: Random) -> None:
        """Split or merge, as clients do under pressure."""
        context = self._repo._context  # noqa: SLF001 - no public method splits at will
        shaper, clock = context.engine.buckets.resharder, context.clock  # type: ignore[attr-defined]
        bucket_id = BucketId(self._repo.namespace_id, SHARDED.entity, RESOURCE)
        within = Deadline(2)
        try:
            found = await shaper._reader.read_all(bucket_id, clock, within)  # noqa: SLF001
            pairs = [each for each in found if each.n > 1 and each.survives]
            if not found:
                return
            self._diary.tell("shape", bucket=SHARDED.entity)
            if len(found) < 4 and (not pairs or chance.random() < 0.5):
                await shaper.split(bucket_id, chance.choice(sorted(found)), clock, within)
            elif pairs:
                resolved = await self._repo.charging.resolve(SHARDED.entity, RESOURCE, clock())
                shard = chance.choice(sorted(pairs))
                await shaper.merge(bucket_id, shard, resolved.in_force, clock, within)
        except (RateLimiterUnavailable, TimeoutError):
            pass


class PendingEnds:
    """The ends of blocks and of calls that were left. What the store does not take is repeated.

    What is not stored when the process ends was never answered, as far as the notes say.
    """

    def __init__(self, diary: Diary, repo: Repository) -> None:
        self._diary, self._repo = diary, repo
        self._ends: list[tuple[int, int, str]] = []

    def add(self, number: int, lost: int, outcome: str) -> None:
        """Note the outcome of an end if it is stored; ``lost`` counts what was lost before it."""
        self._ends.append((number, lost, outcome))
        self.look()

    def look(self) -> None:
        """Note the outcomes, if nothing is repeated any more."""
        if self._repo.pending_settlements:
            return
        for number, lost, outcome in self._ends:
            is_lost = lost != self._repo.lost_settlements
            self._diary.end(number, "unknown" if is_lost else outcome)
        self._ends = []


class Lease:
    """One call, from its begin to its end, and what it has taken and still owes."""

    def __init__(
        self,
        diary: Diary,
        repo: Repository,
        ends: PendingEnds,
        bucket: Bucket,
        amounts: Mapping[str, int],
        timeout: float | None,
    ) -> None:
        self.bucket = bucket
        self._diary, self._repo, self._ends, self._timeout = diary, repo, ends, timeout
        self._taken = dict(amounts)
        self._number = 0
        self._doubtful: int | None = None  # a settlement that may have been made
        self._acquire: Any = None
        self._lease: Any = None

    async def enter(self, acquire: Any, leaves_s: float | None) -> bool:
        """Acquire; a caller that leaves does so after these seconds. True if it was admitted."""
        self._acquire = acquire
        self._number = self._diary.begin("acquire", self._by_series(self._taken))
        lost, began_s = self._repo.lost_settlements, time.monotonic()
        task = asyncio.ensure_future(acquire.__aenter__())
        if leaves_s is not None:
            await asyncio.wait([task], timeout=leaves_s)
            task.cancel()
        try:
            self._lease = await task
            outcome = "admitted"
        except RateLimitExceeded:
            # A caller that wakes after its deadline leaves, and gives its reservation back.
            is_late = self._timeout is not None and time.monotonic() - began_s > self._timeout
            outcome = "cancelled" if is_late else "rejected"
        except NO_DECISION:
            outcome = "unknown"
        except asyncio.CancelledError:
            outcome = "cancelled"
        if outcome == "cancelled":
            self._ends.add(self._number, lost, outcome)
        else:
            self._diary.end(self._number, outcome)
        return outcome == "admitted"

    async def end(self, ending: str, chance: Random) -> None:
        """Change the lease in one way, and leave its block."""
        failure: BaseException | None = None
        changes: dict[str, int] = {}
        if ending == "raise":
            failure = BlockFailed()
        elif ending == "left":
            failure = asyncio.CancelledError()
        elif ending == "release":
            await self._release(chance)
        elif ending == "consume":
            await self._consume(chance)
        elif ending == "too much":
            changes = await self._give_too_much_back(chance)
        elif ending == "now":
            failure, changes = await self._settle_now(chance)
        elif ending != "plain":
            changes = await self._adjust(ending, chance)
        if ending in ("raise", "left"):
            changes = {name: -amount for name, amount in self._taken.items()}
        await self._exit(failure, changes)

    async def _adjust(self, ending: str, chance: Random) -> dict[str, int]:
        most = {"more": (0, 1), "less": (-1, 0), "settle": (-1, 1)}[ending]
        changes = {
            name: chance.randint(most[0] * amount, most[1] * min(amount, 5))
            for name, amount in self._taken.items()
        }
        if ending == "settle":
            costs = {name: amount + changes[name] for name, amount in self._taken.items()}
            await self._lease.settle(_written(self.bucket, costs))
        else:
            await self._lease.adjust(_written(self.bucket, changes))
        return changes

    async def _give_too_much_back(self, chance: Random) -> dict[str, int]:
        """Give more back than was taken, which has to be refused."""
        changes = {name: -amount - chance.randint(1, 5) for name, amount in self._taken.items()}
        try:
            await self._lease.adjust(_written(self.bucket, changes))
        except ValidationError:
            return {}
        return changes

    async def _release(self, chance: Random) -> None:
        amounts = {name: chance.randint(0, amount) for name, amount in self._taken.items()}
        back = {name: -amount for name, amount in amounts.items()}
        number = self._diary.begin("release", self._by_series(back), self._number)
        try:
            await self._lease.release(_written(self.bucket, amounts))
        except NO_DECISION:
            self._diary.end(number, "unknown")
        else:
            self._diary.end(number, "written")
        for name, amount in amounts.items():
            self._taken[name] -= amount

    async def _consume(self, chance: Random) -> None:
        amounts = {name: chance.randint(1, 3) for name in self._taken}
        number = self._diary.begin("consume", self._by_series(amounts), self._number)
        try:
            await self._lease.consume(_written(self.bucket, amounts))
        except RateLimitExceeded:
            self._diary.end(number, "rejected")
        except NO_DECISION:
            self._diary.end(number, "unknown")
        else:
            self._diary.end(number, "admitted")
            for name, amount in amounts.items():
                self._taken[name] += amount

    async def _settle_now(self, chance: Random) -> tuple[BaseException | None, dict[str, int]]:
        """Settle at once, go on for a while, and fail, settle again or do neither.

        What is settled at once is used: it does not come back if the process dies meanwhile.
        """
        more = 0 if self.bucket is TURNED else 3
        costs = {name: chance.randint(0, amount + more) for name, amount in self._taken.items()}
        changes = {name: cost - self._taken[name] for name, cost in costs.items()}
        number = self._diary.begin("settle", self._by_series(changes), self._number)
        try:
            await self._lease.settle(_written(self.bucket, costs), now=True)
        except NO_DECISION:
            self._doubtful = number  # the end of the block may write it
        else:
            self._diary.end(number, "written")
        self._taken = costs
        await asyncio.sleep(chance.random() * (GOES_ON_S if self.bucket in HELD else 0.01))
        if self._doubtful is not None or chance.random() < 0.4:
            return None, {}
        if chance.random() < 0.5:
            return BlockFailed(), {}
        return None, await self._adjust("settle" if more else "less", chance)

    async def _exit(self, failure: BaseException | None, changes: dict[str, int]) -> None:
        number = self._diary.begin("exit", self._by_series(changes or self._zero()), self._number)
        lost = self._repo.lost_settlements
        kind = None if failure is None else type(failure)
        await self._acquire.__aexit__(kind, failure, None)
        self._ends.add(number, lost, "written")
        if self._doubtful is not None:
            self._ends.add(self._doubtful, lost, "unknown")

    def _zero(self) -> dict[str, int]:
        return dict.fromkeys(self._taken, 0)

    def _by_series(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return amounts by series; those of a child are its parent's, too."""
        entities = [self.bucket.entity, self.bucket.parent]
        return {
            f"{entity}/{name}": amount
            for entity in entities
            if entity is not None
            for name, amount in amounts.items()
        }


def _some_amounts(bucket: Bucket, chance: Random) -> dict[str, int]:
    if bucket is BUDGET:
        return {"usd": chance.randrange(1, NANO)}
    if bucket is QUOTA:
        return {"calls": chance.randint(1, 3)}
    if bucket is TURNED:
        return {"turns": chance.randint(1, 3)}
    if bucket is SHARDED:
        return {"rpm": chance.choice((1, 2, 5, 30))}
    amounts = {"rpm": chance.randint(1, min(5, bucket.limits[0].capacity))}
    if bucket in PLAIN and chance.random() < 0.8:
        amounts["tpm"] = chance.choice((10, 50, 400))
    return amounts


def _written(bucket: Bucket, amounts: Mapping[str, int]) -> dict[str, Any]:
    """Return amounts as users write them: those of a budget are decimals."""
    if bucket is BUDGET:
        return {name: Decimal(amount) / NANO for name, amount in amounts.items()}
    return dict(amounts)

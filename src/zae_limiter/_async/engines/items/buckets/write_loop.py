"""The optimistic write loop: plan a step, write, learn from the answer, until all is decided.

A group of changes is judged at one stamp. Every refused write returns the item as it is, so a few
attempts are enough. If they are not, the item is read and asked once more, and then again with
backoff until the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from zae_limiter._async.engines.items.backoff import BoundedBackoff
from zae_limiter._async.engines.items.buckets.conditional_write import (
    ConditionalWriter,
    LostWrite,
)
from zae_limiter._async.engines.items.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.items.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter.admission.in_force import is_too_early
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.tally import NO_TALLY
from zae_limiter.admission.usage import late_usage
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.items.buckets.cache import (
    NEVER_SEEN,
    BucketCache,
    FreshBucket,
    KnownBucket,
)
from zae_limiter.items.buckets.group_run import GroupRun
from zae_limiter.items.buckets.outcomes import (
    Applied,
    Outcome,
    Rejected,
    ShardMerged,
    outcomes_behind_others,
    outcomes_of_write,
)
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.buckets.planning import NothingToWrite, ReadFirst, plan
from zae_limiter.items.buckets.turning import BegunHour
from zae_limiter.items.buckets.writes import PlannedWrite, WriteContext
from zae_limiter.items.counters import Counters
from zae_limiter.items.sharding.throttling import ThrottledItems
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.bucket import EntityLink, StoredBucket, new_write_id
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.items.stored.usage.hours import still_holds_finished
from zae_limiter.store_errors import ConditionFailed, NoAnswer, NotSent, ServerFault, Throttled
from zae_limiter.tallies import NotedTallies, TakenTallies

EXTRA_ATTEMPTS = 4  # beyond one per limit: each refusal corrects the branch of at least one limit
NO_LINK = EntityLink()
HIDDEN_BY_OTHERS = (
    "the answer to a write was lost; the write was made, but others have followed, so its outcome "
    "is not known"
)


class WriteLoop:
    """Decides a group of changes to one item, exactly at one stamp."""

    def __init__(
        self,
        writer: ConditionalWriter,
        cache: BucketCache,
        upkeep: BucketUpkeep,
        throttled: ThrottledItems,
        *,
        counters: Counters,
        resources: ResourcesInUse,
        noted: NotedTallies,
        usage_rows: UsageRows,
        table: TableContext,
    ) -> None:
        self._resources = resources
        self._writer = writer
        self._cache = cache
        self._upkeep = upkeep
        self._throttled = throttled
        self._counters = counters
        self._noted = noted
        self._usage_rows = usage_rows
        self._table = table
        self._later = table.later
        self._turning: set[ShardId] = set()  # items whose hour a write under way turns
        self._is_aggregated = False  # whether an aggregator was seen to clear finished hours

    async def run(self, group: Sequence[PendingChange]) -> list[Outcome]:
        """Return the outcome of every change; they share one item, and the first one leads."""
        if len(group) > 1:
            self._counters.group(len(group))
        stamp_ms = group[0].stamp_ms
        assert stamp_ms is not None, "the leader has read the clock"
        run = GroupRun(group, stamp_ms)
        try:
            await self._attempts(run)
            if run.changes:
                await self._keep_trying(run)
        except ZAELimiterError as failure:
            error = failure
            if isinstance(error, (NoAnswer, ServerFault)):
                self._cache.invalidate(run.shard_id)
                if run.lost_write is None:  # a read, or a write that prepares, has failed
                    error = NotSent(str(failure), cause=failure)
                else:
                    self._counters.add(unknown_writes=1)
            # Each caller adds its own entity and resource to its copy.
            run.note([error.copy() for _ in run.changes])
        outcomes = run.outcomes()
        if run.lost_write is not None:
            for pending in group:
                pending.lost_write = run.lost_write
        self._count(group, outcomes)
        return outcomes

    async def _keep_trying(self, run: GroupRun) -> None:
        """Make attempts until the deadline: other clients keep changing the item."""
        backoff = BoundedBackoff(run.deadline)
        while run.changes:
            if not await backoff.pause():
                raise RateLimiterUnavailable(
                    "too many clients write to this bucket at once; try again"
                )
            await self._attempts(run)

    async def _attempts(self, run: GroupRun) -> None:
        """Plan, write and learn, a bounded number of times or until every change is decided."""
        known: KnownBucket = self._cache.get(run.shard_id) or NEVER_SEEN
        reads_first, has_rebased = run.reads_first, False
        taken = TakenTallies(self._noted)
        run.tally = taken.take_total(run.bucket_id)
        try:
            for left in range(len(run.in_force.keys) + EXTRA_ATTEMPTS, -1, -1):
                if reads_first or left == 0:
                    known = await self._read(run, known)
                    reads_first = False
                context = self._context(run)
                link = NO_LINK if known.bucket is not None else await self._link(run)
                step = plan(known, run.changes, context, link)
                if isinstance(step, PlannedWrite):
                    if step.structural and has_rebased:  # another client re-bases the bucket, too
                        await BoundedBackoff(run.deadline).pause()
                    has_rebased = has_rebased or step.structural
                    known = await self._write(step, known, run)
                elif isinstance(step, ReadFirst):
                    reads_first = True
                else:
                    run.note(await self._without_write(step, context, run))
                if not run.changes:
                    return
        finally:
            if not run.tally.is_empty:  # no write has taken it along
                taken.give_back()

    async def _link(self, run: GroupRun) -> EntityLink:
        shard_id = run.shard_id
        return await self._upkeep.entity_link(
            shard_id.namespace_id, shard_id.entity_id, run.deadline
        )

    async def _read(self, run: GroupRun, known: KnownBucket) -> FreshBucket:
        item = await self._table.store.get(keys.bucket(*run.shard_id), run.deadline)
        return self._cache.store_authoritative(run.shard_id, item, run.now_ms, known.bucket)

    def _context(self, run: GroupRun) -> WriteContext:
        """Return the context of one attempt, with a write id of its own."""
        shard_id, now_ms, usage_ms = run.shard_id, run.now_ms, self._table.usage_ms
        is_turning, write_id = shard_id in self._turning, new_write_id(now_ms)
        return WriteContext(
            shard_id, now_ms, write_id, usage_ms, run.tally, is_turning, self._is_aggregated
        )

    async def _without_write(
        self,
        step: NothingToWrite | ShardMerged | StaleLimits,
        context: WriteContext,
        run: GroupRun,
    ) -> list[Outcome | None]:
        """Return the outcomes of the open changes that need no write to the bucket."""
        changes = run.changes
        if isinstance(step, ShardMerged):
            return [step] * len(changes)
        if isinstance(step, StaleLimits):  # settlements are written whatever the limits are
            return [step if change.is_charge else None for change in changes]
        if step.late_credits:
            await self._credit_late(step.late_credits, context.write_id, run)
        rejected = Rejected(image=step.image, now_ms=context.now_ms, shard=step.shard)
        return [rejected if change.is_charge else Applied(None) for change in changes]

    async def _write(self, write: PlannedWrite, known: KnownBucket, run: GroupRun) -> FreshBucket:
        """Send one write, and learn from the item that the answer shows.

        If the outcome of a write stays unknown, the tally that it has taken along is lost, since it
        must never be counted twice.
        """
        counters = self._counters
        counters.writes.add()
        for move in write.moves:
            (counters.plain_moves if move.put is None else counters.clamp_moves).add()
        left = run.tally
        if not write.tally.is_empty:
            run.tally = NO_TALLY
        try:
            if write.store_first is None and write.begins_hour is None:
                on_throttled = partial(self._throttled.add, run.shard_id)
                item = await self._writer.write(write, run.deadline, on_throttled)
            else:
                item = await self._write_turning(write, known, run)
        except ConditionFailed as refused:
            run.tally = left
            counters.add(refused_writes=1)
            return self._cache.store_authoritative(
                run.shard_id, refused.item, run.now_ms, known.bucket, in_full=write.structural
            )
        except (NotSent, Throttled):
            run.tally = left
            raise
        except (NoAnswer, ServerFault) as doubt:
            if not write.structural:
                run.lost_write = LostWrite.of(self._table.store, write, doubt)
            raise
        bucket = self._learn(write, item, known, run)
        if write.late_credits:
            await self._credit_late(write.late_credits, write.write_id, run)
        image, in_force = bucket.image, run.in_force.at(bucket.shard)
        outlasts_refill = in_force.outlasts_refill(image.expires_ms, len(image.limits), run.now_ms)
        if (write.may_leave_debt or not outlasts_refill) and is_too_early(image):
            await self._upkeep.extend_ttl(run.shard_id, image, in_force, run.now_ms, run.deadline)
        return FreshBucket(bucket)

    async def _write_turning(self, write: PlannedWrite, known: KnownBucket, run: GroupRun) -> Item:
        """Send a write that begins an hour, or drops one from the item.

        A finished hour that the write drops is stored before: no other item has it. If another
        client was faster with that, it is about to turn the item: the item is read again instead of
        sending a write that would be refused. If an aggregator was faster, the item shows it: then
        this client leaves hours to the aggregator, until it finds one that was not cleared.
        """
        shard_id, deadline, first = run.shard_id, run.deadline, write.store_first
        if first is not None and await self._usage_rows.store(shard_id, first, deadline):
            await BoundedBackoff(deadline).pause()
            item = await self._table.store.get(keys.bucket(*shard_id), deadline)
            self._watch_aggregator(item, known)
            raise ConditionFailed(item)
        self._turning.add(shard_id)
        try:
            return await self._writer.write(write, deadline, partial(self._throttled.add, shard_id))
        except ConditionFailed as refused:
            self._watch_aggregator(refused.item, known)
            raise
        except (NoAnswer, ServerFault):
            # The hour may have begun. The announcement of a day that has not counts zero.
            if write.begins_hour is not None:
                self._usage_rows.announce(shard_id, write.begins_hour)
            raise
        finally:
            self._turning.discard(shard_id)

    def _watch_aggregator(self, item: Item | None, known: KnownBucket) -> None:
        """Note whether a finished hour that was seen in an item has been cleared since."""
        if known.bucket is not None:
            holds = still_holds_finished(item, known.bucket.hours)
            if holds is not None:
                self._is_aggregated = not holds

    def _learn(
        self, write: PlannedWrite, item: Item, known: KnownBucket, run: GroupRun
    ) -> StoredBucket:
        """Note the outcomes of a write, cache the item, and announce a day that it has begun."""
        bucket = bucket_item.decode(item, known.bucket)
        shard_id, now_ms = run.shard_id, run.now_ms
        self._cache.store(shard_id, bucket, now_ms, write.net_milli)
        if not write.structural:
            run.note(self._outcomes(write, bucket, run))
        if _begins_day(write, known, bucket):
            self._announce(write, bucket, shard_id)
        elif self._later.failed:
            self._later.retry()
        return bucket

    def _outcomes(
        self, write: PlannedWrite, bucket: StoredBucket, run: GroupRun
    ) -> Sequence[Outcome | None]:
        """Return the outcomes of a write, from the item after it, or after others that followed."""
        decision, now_ms = write.decision, run.now_ms
        assert decision is not None, "a structural write has no outcomes"
        if bucket.write_id == write.write_id:
            return outcomes_of_write(decision, decision.carried, bucket, now_ms)
        doubt = NoAnswer(HIDDEN_BY_OTHERS)
        outcomes = outcomes_behind_others(decision, bucket, now_ms, doubt)
        if any(isinstance(each, NoAnswer) for each in outcomes):
            self._counters.add(unknown_writes=1)
        return outcomes

    def _announce(self, write: PlannedWrite, bucket: StoredBucket, shard_id: ShardId) -> None:
        """Announce the day that a bucket has begun, and its resource, for queries of a resource.

        The origin is read from the item: a repeated first write has created it under another one.
        The hour is that of the write: others that followed may have begun the next day.
        """
        begun = write.begins_hour
        hour = bucket.hours.hour if begun is None else begun.hour
        self._usage_rows.announce(shard_id, BegunHour(bucket.hours.origin, hour))
        self._resources.add(shard_id.namespace_id, shard_id.resource)

    async def _credit_late(
        self, credits_milli: Mapping[str, tuple[int, int]], write_id: str, run: GroupRun
    ) -> None:
        """Count credits to a bucket or limit that does not exist as usage of this hour."""
        if self._table.usage_ms:
            credit = late_usage(credits_milli, run.now_ms, run.in_force)
            await self._usage_rows.credit_late(run.bucket_id, write_id, credit, run.deadline)

    def _count(self, group: Sequence[PendingChange], outcomes: Sequence[Outcome]) -> None:
        """Count charges and settlements; a shard's rejection is not the bucket's."""
        counters = self._counters
        for pending, outcome in zip(group, outcomes, strict=True):
            if not pending.is_counted:
                continue
            if not pending.change.is_charge:
                counters.settlements.add()
            elif isinstance(outcome, Applied):
                counters.granted.add()
            elif isinstance(outcome, Rejected):
                if outcome.shard.n == 1:
                    counters.rejected.add()
            elif not isinstance(outcome, ShardMerged):
                counters.failed.add()


def _begins_day(write: PlannedWrite, known: KnownBucket, bucket: StoredBucket) -> bool:
    """Tell whether a write has created its bucket, or begun the bucket's first hour of a day.

    A first write that found the bucket there has begun nothing: the client that created the bucket
    announces the day and registers the resource. If other writes are seen to have followed, the
    first write may have created the bucket.
    """
    if known.bucket is None:
        return bucket.image.writes == 1 or bucket.write_id != write.write_id
    return write.begins_hour is not None and write.begins_hour.is_first_of_day

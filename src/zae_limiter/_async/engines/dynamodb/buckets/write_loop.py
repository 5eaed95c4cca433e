"""The optimistic write loop: send a write, learn from a refusal, send the right one.

A group of changes is judged at one stamp. Every refused write returns the item as it is, so a few
attempts are enough; if they are not, the item is read and asked once more, and then again with
backoff until the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from zae_limiter._async.engines.dynamodb.buckets.conditional_write import ConditionalWriter
from zae_limiter._async.engines.dynamodb.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.dynamodb.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.dynamodb.buckets.usage_rows import UsageRows
from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.requests import BoundedBackoff
from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.in_force import is_too_early
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.request import StaleLimits
from zae_limiter.admission.tally import NO_TALLY
from zae_limiter.concurrency.tallies import NotedTallies, NotedTally
from zae_limiter.dynamodb.buckets import writes
from zae_limiter.dynamodb.buckets.cache import (
    UNKNOWN_BUCKET,
    BucketCache,
    FreshBucket,
    KnownBucket,
)
from zae_limiter.dynamodb.buckets.pending import (
    Applied,
    BucketChange,
    ChargeDraft,
    Outcome,
    PendingChange,
    Rejected,
    ShardMerged,
    applied_outcomes,
    fits_alone,
)
from zae_limiter.dynamodb.buckets.planned_slots import Moments
from zae_limiter.dynamodb.buckets.planning import (
    NothingToWrite,
    ReadFirst,
    Step,
    plan,
    rejected_alone,
)
from zae_limiter.dynamodb.buckets.turning import NO_AMOUNTS
from zae_limiter.dynamodb.buckets.writes import SINGLE_CHARGE, Attempt, WriteContext
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.items import bucket as bucket_item
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.bucket import EntityLink, ShardId, StoredBucket, new_write_id
from zae_limiter.dynamodb.sharding.throttling import ThrottledItems
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.transport.calls import Deadline
from zae_limiter.transport.errors import (
    ConditionFailed,
    NoAnswer,
    NotSent,
    ServerFault,
    Throttled,
)

EXTRA_ATTEMPTS = 4  # beyond one per limit: each refusal corrects the branch of at least one limit
NO_LINK = EntityLink()
Undecided = tuple[Sequence[int], list[BucketChange]]


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

    async def run(self, group: Sequence[PendingChange]) -> list[Outcome]:
        """Return the outcome of every change; they share one item, and the first one leads."""
        leader = group[0]
        if len(group) > 1:
            self._counters.group(len(group))
        draft = leader.draft
        if draft is not None and self._cache.get(leader.shard_id) is not draft.cached:
            draft = None  # another write has come since it was planned
        now_ms = leader.clock() if draft is None else draft.now_ms
        decisions: list[Outcome | None] = [None] * len(group)
        try:
            if not await self._attempts(group, decisions, now_ms, draft):
                await self._keep_trying(group, decisions, now_ms)
        except ZAELimiterError as error:
            if isinstance(error, NoAnswer | ServerFault):
                self._counters.add(unknown_writes=1)
                self._cache.invalidate(leader.shard_id)
            # Each caller adds its own entity and resource to its copy.
            decisions = [error.copy() if each is None else each for each in decisions]
        outcomes = cast(list[Outcome], decisions)  # none is left open
        if draft is not None and type(outcomes[0]) is Applied:
            self._counters.granted()  # the usual case, counted without a lock
        else:
            self._count(group, outcomes)
        return outcomes

    async def _keep_trying(
        self, group: Sequence[PendingChange], decisions: list[Outcome | None], now_ms: int
    ) -> None:
        """Go on until the deadline: other clients keep changing the limits."""
        backoff = BoundedBackoff(group[0].deadline)
        while await backoff.pause():
            if await self._attempts(group, decisions, now_ms, None):
                return
        raise RateLimiterUnavailable("too many clients write to this bucket at once; try again")

    async def _attempts(
        self,
        group: Sequence[PendingChange],
        decisions: list[Outcome | None],
        now_ms: int,
        draft: ChargeDraft | None,
    ) -> bool:
        """Make a bounded number of attempts, and note decisions; True if none is left open."""
        leader = group[0]
        shard_id, deadline = leader.shard_id, leader.deadline
        read, rebased, more = leader.look_first, False, len(group) > 1
        alone: Undecided = SINGLE_CHARGE, [leader.change]
        known: KnownBucket = self._cache.get(shard_id) or UNKNOWN_BUCKET
        uncounted = self._noted.take(leader.bucket_id) if self._noted.by_bucket else None
        try:
            for left in range(len(leader.change.in_force.keys) + EXTRA_ATTEMPTS, -1, -1):
                if read or left == 0:
                    item = await self._writer.read(bucket_item.key(*shard_id), deadline)
                    known = self._cache.store_authoritative(shard_id, item, now_ms, known.bucket)
                    read = False
                context = self._context(shard_id, now_ms, uncounted)
                undecided, changes = _undecided(group, decisions) if more else alone
                if draft is not None:
                    (cached, moves, _, _), change = draft, leader.change
                    step: Step = writes.charge(
                        cached, cached.bucket, moves, change, change.in_force, context
                    )
                    draft = None
                else:
                    link = NO_LINK
                    if known.bucket is None:
                        link = await self._upkeep.entity_link(*shard_id[:2], deadline)
                    step = plan(known, changes, context, link)
                if isinstance(step, ReadFirst):
                    read = True
                    continue
                if isinstance(step, Attempt):
                    if step.structural and rebased:  # another client re-bases at the same time
                        await BoundedBackoff(deadline).pause()
                    rebased = rebased or step.structural
                    before = uncounted
                    if not step.tally.is_empty:
                        uncounted = None  # also if the outcome is unknown: never counted twice
                    try:
                        known, decided, is_made = await self._attempt(
                            step, known, changes, context, deadline
                        )
                    except (NotSent, Throttled):
                        uncounted = before
                        raise
                    if not is_made:
                        uncounted = before
                    if decided is None:
                        continue
                else:
                    decided = await self._without_write(step, changes, context, deadline)
                for at, outcome in zip(undecided, decided, strict=True):
                    decisions[at] = outcome
                if None not in decisions:
                    return True
            return False
        finally:
            if uncounted is not None:
                self._noted.put_back(leader.bucket_id, uncounted)

    async def _without_write(
        self,
        step: NothingToWrite | ShardMerged | StaleLimits,
        changes: Sequence[BucketChange],
        context: WriteContext,
        deadline: Deadline,
    ) -> list[Outcome | None]:
        """Decide what is known without a write to the bucket."""
        if isinstance(step, ShardMerged):
            return [step] * len(changes)
        if isinstance(step, StaleLimits):  # settlements are written whatever the limits are
            return [step if change.is_charge else None for change in changes]
        if step.late_credits:
            await self._credit_late(step.late_credits, context, deadline)
        rejected = Rejected(step.image, context.now_ms, step.shard)
        return [rejected if change.is_charge else Applied(None) for change in changes]

    def _context(
        self, shard_id: ShardId, now_ms: int, uncounted: NotedTally | None
    ) -> WriteContext:
        """Return the context of one attempt, with an id of its own."""
        tally = NO_TALLY if uncounted is None else uncounted.total()
        turning = shard_id in self._turning
        write_id, usage_ms = new_write_id(now_ms), self._table.usage_ms
        return WriteContext(
            shard_id=shard_id,
            now_ms=now_ms,
            write_id=write_id,
            usage_ms=usage_ms,
            tally=tally,
            is_turning=turning,
        )

    async def _attempt(
        self,
        attempt: Attempt,
        known: KnownBucket,
        changes: Sequence[BucketChange],
        context: WriteContext,
        deadline: Deadline,
    ) -> tuple[KnownBucket, Sequence[Outcome | None] | None, bool]:
        """Send one write; return the bucket as it shows it, its decisions, and if it was made.

        The decisions are None if the write must be planned again.
        """
        shard_id, now_ms = context.shard_id, context.now_ms
        positions, begins = attempt.applied_positions, attempt.begins_hour
        self._counters.writes[attempt.plain_moves, attempt.clamp_moves].add()
        try:
            on_throttled = partial(self._throttled.add, shard_id)
            if begins is None and attempt.store_first is None:
                item = await self._writer.write(attempt, deadline, on_throttled)
            else:
                item = await self._begin_hour(attempt, shard_id, deadline)
        except ConditionFailed as failed:
            self._counters.refused()
            fresh = self._cache.store_authoritative(shard_id, failed.item, now_ms, known.bucket)
            rejection = rejected_alone(fresh, changes, now_ms)
            if rejection is None:
                return fresh, None, False
            return fresh, [rejection], False
        bucket = bucket_item.decode(item, known.bucket)
        self._cache.store(shard_id, bucket, now_ms, attempt.net_milli)
        if begins is not None:
            self._announce(bucket, shard_id)
        elif self._later.failed:
            self._later.retry()
        image, in_force = bucket.image, changes[0].in_force
        decided: Sequence[Outcome | None]
        if positions is SINGLE_CHARGE and bucket.shard.n == 1:
            decided = [
                Applied(
                    image=image,
                    spilled_milli=NO_AMOUNTS,
                    is_short=False,
                    is_whole=True,
                    reservation=None,
                    moments=None,
                    life="",
                )
            ]
            # A charge leaves no debt: the levels need not be looked at.
            if in_force.outlasts_refill(image.expires_ms, len(image.limits), now_ms):
                return known, decided, True  # everything is decided: the caller does not look at it
        elif attempt.structural:
            decided = [None] * len(changes)
        else:
            decided = _decided_by_write(changes, positions, bucket, now_ms)
            if attempt.moments:
                decided = _with_moments(decided, attempt.moments)
            if attempt.late_credits:
                await self._credit_late(attempt.late_credits, context, deadline)
        if known.bucket is None and image.writes == 1:  # this write has created the bucket
            self._resources.add(shard_id.namespace_id, shard_id.resource)
        if is_too_early(image):
            own = in_force.at(bucket.shard)
            await self._upkeep.extend_ttl(shard_id, image, own, now_ms, deadline)
        return FreshBucket(bucket), decided, True

    async def _begin_hour(self, attempt: Attempt, shard_id: ShardId, deadline: Deadline) -> Item:
        """Send a write that begins an hour, or drops one from the item.

        A finished hour that it drops is stored before: nothing else has it. If another client was
        faster with that, it is about to turn the item: to look is cheaper than a refused write.
        """
        on_throttled, bucket_id = partial(self._throttled.add, shard_id), shard_id.bucket_id
        first = attempt.store_first
        if first is not None and await self._usage_rows.store(bucket_id, first, deadline):
            await BoundedBackoff(deadline).pause()
            raise ConditionFailed(await self._writer.read(bucket_item.key(*shard_id), deadline))
        self._turning.add(shard_id)
        try:
            item = await self._writer.write(attempt, deadline, on_throttled)
        except (NoAnswer, ServerFault):
            # It may have begun; an hour that has not counts zero.
            if attempt.begins_hour is not None and self._table.usage_ms:
                self._usage_rows.announce(bucket_id, *attempt.begins_hour)
            raise
        finally:
            self._turning.discard(shard_id)
        return item

    def _announce(self, bucket: StoredBucket, shard_id: ShardId) -> None:
        """Announce the hour that a bucket has begun, and its resource, for queries of them all.

        As the item shows it: a repeated first write has created it under another origin.
        """
        if self._table.usage_ms:
            hours = bucket.hours
            self._usage_rows.announce(shard_id.bucket_id, hours.origin, hours.hour)
        self._resources.add(shard_id.namespace_id, shard_id.resource)

    async def _credit_late(
        self,
        credits_milli: Mapping[str, tuple[int, int]],
        context: WriteContext,
        deadline: Deadline,
    ) -> None:
        """Count credits to a bucket or limit that does not exist as usage of this hour."""
        if context.usage_ms:
            hour, bucket_id = context.now_ms // HOUR_MS, context.shard_id.bucket_id
            await self._usage_rows.credit_late(
                bucket_id, hour, context.write_id, credits_milli, deadline
            )

    def _count(self, group: Sequence[PendingChange], outcomes: Sequence[Outcome]) -> None:
        """Count charges and settlements; a shard's rejection is not the bucket's."""
        first = outcomes[0]
        if len(group) == 1 and type(first) is Rejected and first.shard.n == 1:
            if group[0].is_counted:
                self._counters.rejected()  # without a lock
            return
        charges = settlements = granted = rejected = 0
        for pending, outcome in zip(group, outcomes, strict=True):
            if not pending.is_counted:
                continue
            if not pending.change.is_charge:
                settlements += 1
            elif isinstance(outcome, Rejected):
                rejected += outcome.shard.n == 1
            elif not isinstance(outcome, ShardMerged):
                charges += 1
                granted += isinstance(outcome, Applied)
        self._counters.add(
            charges=charges + rejected, granted=granted, rejected=rejected, settlements=settlements
        )


def _undecided(group: Sequence[PendingChange], decisions: Sequence[Outcome | None]) -> Undecided:
    """Return the positions of changes that are not decided yet, and the changes."""
    undecided = [at for at, decision in enumerate(decisions) if decision is None]
    return undecided, [group[at].change for at in undecided]


def _with_moments(
    decided: Sequence[Outcome | None], moments: Mapping[int, Moments]
) -> list[Outcome | None]:
    """Tell each change until when it holds its slots, and in which life of the bucket."""
    return [
        each._replace(
            moments=moments.get(position), life="" if each.image is None else each.image.life
        )
        if isinstance(each, Applied)
        else each
        for position, each in enumerate(decided)
    ]


def _decided_by_write(
    changes: Sequence[BucketChange],
    positions: Sequence[int],
    bucket: StoredBucket,
    now_ms: int,
) -> list[Outcome | None]:
    """Judge charges that the write did not carry on what it has left.

    A write of credits alone says nothing of the limits: they may have been changed meanwhile.
    """
    decided: list[Outcome | None] = [None] * len(changes)
    carried = [changes[position] for position in positions]
    outcomes = applied_outcomes(carried, bucket, now_ms)
    for position, outcome in zip(positions, outcomes, strict=True):
        decided[position] = outcome
    image, shard = bucket.image, bucket.shard
    for position, change in enumerate(changes):
        if decided[position] is None and change.is_charge:
            judgeable = has_limits(image, change.in_force.at(shard))
            if judgeable and not fits_alone(change, image, now_ms):
                decided[position] = Rejected(image, now_ms, shard)
    return decided

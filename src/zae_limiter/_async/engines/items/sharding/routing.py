"""Sending every change to the right shard of its bucket. Most buckets have just one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from zae_limiter._async.engines.items.buckets.group_commit import GroupCommit
from zae_limiter._async.engines.items.sharding.multi_shard import MultiShardWriter
from zae_limiter._async.engines.items.sharding.resharding import Resharder
from zae_limiter._async.engines.items.sharding.shard_reader import ShardReader
from zae_limiter.admission.fit import admits
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import has_limits
from zae_limiter.admission.request import Charge
from zae_limiter.admission.shards.spreading import is_large
from zae_limiter.admission.shards.tree import Shard, heirs
from zae_limiter.clock import Clock, Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import Applied, Outcome, Rejected, ShardMerged
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.counters import Counters
from zae_limiter.items.sharding.affinity import ShardAffinity
from zae_limiter.items.sharding.known_shards import (
    Images,
    KnownShards,
    fitting,
    least_overdrawn,
    rejection,
    soonest,
)
from zae_limiter.items.sharding.throttling import ThrottledItems
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.finishing import ashield
from zae_limiter.store_errors import NotSent

MAX_ATTEMPTS = 8  # each one means that another client came first

logger = quiet_logger(__name__)


class ShardRouter:
    """Ask the shards that seem to hold a charge; the bucket rejects only if all shards do."""

    def __init__(
        self,
        group_commit: GroupCommit,
        multi_shard: MultiShardWriter,
        resharder: Resharder,
        *,
        cache: BucketCache,
        reader: ShardReader,
        throttled: ThrottledItems,
        counters: Counters,
        rejection_cache_ttl: float,
    ) -> None:
        self._group_commit = group_commit
        self._multi_shard = multi_shard
        self._resharder = resharder
        self._cache = cache
        self._reader = reader
        self._throttled = throttled
        self._counters = counters
        self._seen_within_ms = int(rejection_cache_ttl * 1000)
        self._affinity = ShardAffinity()

    async def submit(self, pending: PendingChange) -> Outcome:
        """Return the outcome of a change. For cancellation see ``GroupCommit.submit``."""
        outcome: Outcome | None = None
        if self._cache.layout(pending.bucket_id) is None:
            outcome = await self._group_commit.submit(pending)
        if outcome is None or _concerns_other_shards(outcome):
            outcome = pending.outcome = await self._among_shards(pending, outcome)
        entry = self._cache.get(pending.shard_id)
        if entry is not None:
            is_hot = entry.pressure.is_high or self._throttled.until_s
            if is_hot or entry.bucket.shard.n > 1:
                await self._resharder.reshard_if_due(pending)
        return outcome

    async def update_limits(
        self, bucket_id: BucketId, in_force: InForce, clock: Clock, deadline: Deadline
    ) -> None:
        """Bring a bucket to the limits in force; one that is absent or newer stays as it is."""
        _, entity_id, resource = bucket_id
        amounts = dict.fromkeys(in_force.keys, 0)
        change = Charge(entity_id, resource, in_force, amounts, admitted=0)
        pending = PendingChange(bucket_id, change, clock, deadline, is_counted=False)
        shards = await self._known_shards(pending, read_all=True)
        if outdated := shards.with_other_limits(in_force):
            problem = await self._update_limits(pending, outdated)
            if isinstance(problem, ZAELimiterError):
                raise problem

    async def _among_shards(self, pending: PendingChange, outcome: Outcome | None) -> Outcome:
        """Return the outcome of a change that several shards of its bucket decide together."""
        try:
            if pending.change.must_fit:
                return await self._charge(pending, outcome)
            return await ashield(partial(self._settle, pending, outcome))
        except ZAELimiterError as error:
            return error

    async def _charge(self, pending: PendingChange, outcome: Outcome | None) -> Outcome:
        if outcome is None and self._redirect_to_current(pending):
            outcome = await self._ask_shard(pending)
            if not isinstance(outcome, Rejected | ShardMerged):
                return outcome
        in_force = pending.change.in_force
        read_all = pending.reads_first or isinstance(outcome, Rejected)
        were_read = False
        for _ in range(MAX_ATTEMPTS):
            shards = await self._known_shards(pending, read_all=read_all)
            were_read, read_all, now_ms = were_read or read_all, False, pending.clock()
            images = shards.images(in_force, now_ms)
            shard = self._choose(pending, shards, images, now_ms)
            if shard is not None:
                pending.redirect(shard.number)
                outcome = await self._ask_shard(pending, shards.with_other_limits(in_force))
                if not isinstance(outcome, Rejected | ShardMerged):
                    return outcome
                read_all = True  # the cache is out of date
            elif not were_read and shards.older_than(now_ms - self._seen_within_ms + 1):
                read_all = True
            elif outdated := shards.with_other_limits(in_force):
                problem = await self._update_limits(pending, outdated)
                if problem is not None:
                    return problem
            else:
                outcome = await self._ask_all(pending, shards, images, now_ms)
                break
        else:  # other clients keep coming first: judge all shards at once
            outcome = await self._gather(pending)
        self._count(outcome)
        return outcome

    def _choose(
        self, pending: PendingChange, shards: KnownShards, images: Images, now_ms: int
    ) -> Shard | None:
        """Choose a shard that holds the charge; for a caller that waits, the one that does first.

        An amount of over half of every share is not reserved: it has to be gathered.
        """
        change = pending.change
        if change.until_ms is not None and is_large(images, change.amounts_milli):
            assert isinstance(change, Charge), "only a charge reserves"
            pending.change = replace(change, until_ms=None)
        holding = fitting(images, change, now_ms, at_once=True)
        fits = least_overdrawn(images, holding, change, now_ms)
        shard = self._affinity.choose(pending.bucket_id, shards.with_entry(fits) or fits)
        if shard is None and pending.change.until_ms is not None:
            shard = soonest(images, fitting(images, change, now_ms), change)
        return shard

    async def _ask_shard(self, pending: PendingChange, outdated: Sequence[int] = ()) -> Outcome:
        """Ask one shard.

        If it has taken new limits, so do the ``outdated`` ones: all shards are one bucket.
        """
        outcome = await self._group_commit.submit(pending)
        if outdated and isinstance(outcome, Applied):
            await self._update_limits(pending, outdated)
        return outcome

    async def _update_limits(
        self, pending: PendingChange, numbers: Sequence[int]
    ) -> Outcome | None:
        """Bring shards to the limits in force; return the outcome that prevents it, if any."""
        return await ashield(partial(self._multi_shard.update_limits, pending, numbers))

    async def _known_shards(self, pending: PendingChange, *, read_all: bool) -> KnownShards:
        """Return the shards after reading all of them, or those that were never read."""
        shards = KnownShards.of(self._cache, pending.bucket_id)
        wanted = shards.numbers() if read_all else shards.never_read()
        while wanted:
            await self._reader.refresh(pending.bucket_id, wanted, pending.clock, pending.deadline)
            shards, before = KnownShards.of(self._cache, pending.bucket_id), wanted
            wanted = shards.never_read() if read_all else []  # those that were read imply others
            if wanted == before:  # the bucket does not exist
                break
        return shards

    async def _ask_all(
        self, pending: PendingChange, shards: KnownShards, images: Images, now_ms: int
    ) -> Outcome:
        """Decide a charge that no shard holds by itself."""
        change = pending.change
        if shards.gathers(images, change, now_ms):
            return await self._gather(pending)
        gathers = shards.should_gather(images, change)
        return rejection(images, change, now_ms, gathers=gathers)

    async def _gather(self, pending: PendingChange) -> Outcome:
        async def gather() -> Outcome:
            pending.outcome = await self._multi_shard.charge(pending)
            return pending.outcome

        pending.outcome = None
        return await ashield(gather)

    def _redirect_to_current(self, pending: PendingChange) -> bool:
        """Redirect a charge to the shard that this process stays with, if that seems to hold it."""
        change, in_force = pending.change, pending.change.in_force
        if pending.reads_first or change.until_ms is not None:
            return False
        if in_force.quota_keys or in_force.soft_keys:  # one shard alone does not tell
            return False
        number = self._affinity.current(pending.bucket_id)
        entry = None if number is None else self._cache.get(pending.bucket_id.shard(number))
        if number is None or entry is None:
            return False
        image, shard = entry.bucket.image, entry.bucket.shard
        if not has_limits(image, in_force.at(shard)):
            return False
        if not admits(image, change, pending.clock()):
            return False
        pending.redirect(number)
        return True

    async def _settle(self, pending: PendingChange, outcome: Outcome | None) -> Outcome:
        """Write a settlement to one shard; others take its spills and share its debts.

        A charge that is not checked, in shadow mode or bypassed, goes the same way.
        """
        change = pending.change
        holds = change.held_slots or change.held_quotas
        for _ in range(MAX_ATTEMPTS):
            if outcome is not None and not isinstance(outcome, ShardMerged):
                break
            if holds or (change.is_charge and change.in_force.held_keys):
                pending.redirect(0)
            else:
                self._redirect_settlement(pending)
            outcome = await self._group_commit.submit(pending)
        if outcome is None or isinstance(outcome, ShardMerged):
            return NotSent("the shards of this bucket keep merging; try again")
        if not isinstance(outcome, Applied):
            return outcome
        if change.is_charge:
            shards = KnownShards.of(self._cache, pending.bucket_id)
            if outdated := shards.with_other_limits(change.in_force):
                await self._update_limits(pending, outdated)
        try:
            if outcome.spilled_milli:
                await self._multi_shard.spill(pending, outcome.spilled_milli)
            if outcome.is_short:
                await self._multi_shard.repay(pending)
        except ZAELimiterError:
            logger.warning(
                "settlement written, but shards of %r on %r could not be rebalanced",
                pending.bucket_id.entity_id,
                pending.bucket_id.resource,
                exc_info=True,
            )
        return outcome

    def _redirect_settlement(self, pending: PendingChange) -> None:
        now_ms = pending.clock()
        shards = KnownShards.of(self._cache, pending.bucket_id)
        if pending.home is not None:
            numbers = shards.numbers()
            pending.redirect(next(each for each in heirs(pending.home) if each in numbers))
            return
        shard = self._affinity.choose_for_settlement(
            pending.bucket_id,
            shards.images(pending.change.in_force, now_ms),
            pending.change,
            now_ms,
        )
        pending.redirect(shard.number)

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, Rejected):
            self._counters.rejected.add()
        elif isinstance(outcome, Applied):
            self._counters.granted.add()


def _concerns_other_shards(outcome: Outcome) -> bool:
    """Tell whether other shards have to be asked, or have something to make up for."""
    if isinstance(outcome, Applied):
        return outcome.is_short or bool(outcome.spilled_milli)
    if isinstance(outcome, Rejected):
        return outcome.shard.n > 1
    return isinstance(outcome, ShardMerged)

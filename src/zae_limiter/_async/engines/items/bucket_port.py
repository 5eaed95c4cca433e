"""The entrance of the engine over items: charges, settlements and queries of buckets.

A charge is one conditional write per bucket, without a read before it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from zae_limiter._async.engines.items.bucket_pausing import BucketPauses
from zae_limiter._async.engines.items.bucket_queries import BucketQueries, IndexedBuckets
from zae_limiter._async.engines.items.buckets.conditional_write import ConditionalWriter
from zae_limiter._async.engines.items.buckets.group_commit import GroupCommit
from zae_limiter._async.engines.items.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.items.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.items.buckets.write_loop import WriteLoop
from zae_limiter._async.engines.items.cascading import Cascade
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.manual_refill import ManualRefill
from zae_limiter._async.engines.items.sharding.multi_shard import MultiShardWriter
from zae_limiter._async.engines.items.sharding.resharding import Resharder
from zae_limiter._async.engines.items.sharding.routing import ShardRouter
from zae_limiter._async.engines.items.sharding.shard_reader import ShardReader
from zae_limiter._async.engines.items.tally_writes import TallyWrites
from zae_limiter._async.engines.items.threshold_marks import ThresholdMarks
from zae_limiter._async.engines.items.usage.writing import UsageRows
from zae_limiter._async.ports import NO_TRACE, Unsettled
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import (
    AcquireEnd,
    ChargeOutcome,
    ChargeRequest,
    Renewal,
    RenewalFailure,
    RenewalOutcome,
    Settlement,
)
from zae_limiter.admission.thresholds import OnExhausted, OnThreshold, RejectingQuota
from zae_limiter.clock import Clock
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.answers import grant, refusal
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.outcomes import Applied, Outcome, Rejected
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.counters import Counters
from zae_limiter.items.rejection_cache import RejectionCache
from zae_limiter.items.sharding.throttling import ThrottledItems
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.bucket import BucketEntry, BucketState, ResourceCapacity
from zae_limiter.runtime.finishing import Receipt, ashield
from zae_limiter.store_errors import NoAnswer, ServerFault
from zae_limiter.tallies import NotedTallies

UNKNOWN = (NoAnswer, ServerFault)
MAY_BE_COMMITTED = (Applied, *UNKNOWN)


class ItemBuckets:
    """The bucket store of the ports, over one table."""

    def __init__(
        self,
        table: TableContext,
        cache: BucketCache,
        counters: Counters,
        *,
        rejection_cache_ttl: float,
        max_shards: int,
    ) -> None:
        store = self._store = table.store
        self._table = table
        self._cache = cache
        self._counters = counters
        reader = ShardReader(store, cache)
        self._noted = NotedTallies()
        self._usage_rows = UsageRows(table)
        self._resources = ResourcesInUse(store, table.later)
        self._queries = BucketQueries(store, reader, table.parallel)
        self._manual_refill = ManualRefill(
            table, cache, reader, resources=self._resources, usage_rows=self._usage_rows
        )
        self._pauses = BucketPauses(
            table, cache, reader, resources=self._resources, usage_rows=self._usage_rows
        )
        self._router = self._build_write_path(reader, max_shards, rejection_cache_ttl)
        self._rejections = RejectionCache(cache, counters, rejection_cache_ttl)
        self._cascade = Cascade(self._router, self._rejections, cache, counters, table.parallel)
        self._tallies = TallyWrites(table, cache, self._router, self._noted)
        self._thresholds = ThresholdMarks(table, cache)

    def _build_write_path(
        self, reader: ShardReader, max_shards: int, rejection_cache_ttl: float
    ) -> ShardRouter:
        """Build the path of a write: router, group commit, write loop, one conditional write."""
        table, store = self._table, self._store
        cache, counters, usage_rows = self._cache, self._counters, self._usage_rows
        writer, upkeep = ConditionalWriter(store), BucketUpkeep(table, cache)
        throttled = ThrottledItems()
        write_loop = WriteLoop(
            writer,
            cache,
            upkeep,
            throttled,
            counters=counters,
            resources=self._resources,
            noted=self._noted,
            usage_rows=usage_rows,
            table=table,
        )
        group_commit = GroupCommit(write_loop)
        multi_shard = MultiShardWriter(
            store,
            writer,
            group_commit,
            reader,
            cache=cache,
            counters=counters,
            usage_rows=usage_rows,
        )
        self.resharder = Resharder(
            store,
            writer,
            reader,
            upkeep,
            cache=cache,
            throttled=throttled,
            counters=counters,
            max_shards=max_shards,
            usage_rows=usage_rows,
        )
        return ShardRouter(
            group_commit,
            multi_shard,
            self.resharder,
            cache=cache,
            reader=reader,
            throttled=throttled,
            counters=counters,
            rejection_cache_ttl=rejection_cache_ttl,
        )

    def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> Coroutine[Any, Any, ChargeOutcome]:
        charge = self._charge_one if len(request.charges) == 1 else self._charge_all
        return charge(namespace_id, request, receipt)  # unasync: remove
        # sync: return shield(partial(charge, namespace_id, request, receipt))

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[Sequence[Unsettled]],
        on_threshold: OnThreshold | None = None,
    ) -> None:
        await ashield(partial(self._settle, namespace_id, settlements, clock, receipt))
        if on_threshold is not None:
            for each in settlements:
                if each.quotas:
                    bucket_id = BucketId(namespace_id, each.entity_id, each.resource)
                    self._thresholds.look(bucket_id, on_threshold, clock)

    async def renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        return await ashield(partial(self._renew, namespace_id, renewals, clock))

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._queries.image(BucketId(namespace_id, entity_id, resource), clock)

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        return await self._queries.states(namespace_id, entity_id, resource, clock)

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        *,
        after: tuple[str, str] | None,
        limit: int,
        clock: Clock,
    ) -> tuple[list[BucketState], tuple[str, str] | None]:
        listed = IndexedBuckets(namespace_id, entity_id, resource)
        return await self._queries.page(listed, after, limit, clock)

    async def some(
        self, namespace_id: str, buckets: Sequence[tuple[str, str]], clock: Clock
    ) -> list[BucketState]:
        return await self._queries.some(namespace_id, buckets, clock)

    async def entries(
        self, namespace_id: str, *, after: tuple[str, str] | None, limit: int
    ) -> tuple[list[BucketEntry], tuple[str, str] | None]:
        return await self._queries.entries(IndexedBuckets(namespace_id), after, limit)

    async def resources(self, namespace_id: str) -> list[str]:
        return await self._resources.all(namespace_id)

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        return await self._queries.capacity(namespace_id, resource, limit_name, parents_only, clock)

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        *,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        bucket_id = BucketId(namespace_id, entity_id, resource)
        return await self._manual_refill.reset(bucket_id, now_ms, principal)

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        *,
        in_force: InForce | None,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        bucket_id = BucketId(namespace_id, entity_id, resource)
        if in_force is not None and in_force.has_quota_among(amounts):
            deadline = self._store.deadline()
            await self._router.update_limits(bucket_id, in_force, lambda: now_ms, deadline)
        return await self._manual_refill.top_up(bucket_id, amounts, in_force, now_ms, principal)

    async def pause(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        until_ms: int,
        *,
        in_force: InForce | None,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms, resource)
        bucket_id = BucketId(namespace_id, entity_id, resource)
        return await self._pauses.pause(bucket_id, until_ms, in_force, change)

    async def _charge_one(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        """Charge one bucket.

        A caller that waits behind another write can be cancelled. Once it leads a write, that write
        is finished first.
        """
        deadline = request.deadline or self._store.deadline()
        pending = PendingChange.of_charge(namespace_id, request.charges[0], request, deadline)
        outcome: Outcome
        judged = self._rejections.judge(pending, request.now_ms)
        if isinstance(judged, Rejected):
            outcome = judged
        else:
            try:
                outcome = await self._router.submit(pending)
            finally:  # also if the caller was cancelled while its charge was written
                if isinstance(pending.outcome, Applied):
                    receipt.outcome = grant(request, [pending], [pending.outcome], self._cache)
        if not isinstance(outcome, Applied):  # raises if the outcome is an error
            receipt.outcome = refusal(request, [pending], [outcome], self._cache)
        if pending.change.in_force.quota_keys:
            self._look_at_thresholds(namespace_id, request)
        return receipt.outcome

    async def _charge_all(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        """Charge several buckets, all or none."""
        deadline = request.deadline or self._store.deadline()
        outcome = await ashield(
            partial(self._cascade.charge, namespace_id, request, deadline, receipt)
        )
        self._look_at_thresholds(namespace_id, request)
        return outcome

    def _look_at_thresholds(self, namespace_id: str, request: ChargeRequest) -> None:
        """Look at the quotas of a request, also if it was rejected: then they are used up."""
        if request.on_threshold is None:
            return
        for charge in request.charges:
            if charge.in_force.quota_keys:
                bucket_id = BucketId(namespace_id, charge.entity_id, charge.resource)
                self._thresholds.look(bucket_id, request.on_threshold, request.clock)

    async def close(self) -> None:
        """Store the counts that no write has taken along, and finish the writes of the background.

        Best effort, at most 1 s for each. Raises no outage. May be called twice.
        """
        await self._tallies.close()
        await self._table.later.close()

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        self._tallies.count(namespace_id, ended)

    async def mark_exhausted(
        self,
        namespace_id: str,
        rejected: Sequence[RejectingQuota],
        on_exhausted: OnExhausted,
        clock: Clock,
    ) -> None:
        for each in rejected:
            self._thresholds.look_at_exhausted(namespace_id, each, on_exhausted, clock)

    async def _renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        deadline, pending = self._store.deadline(), []
        for each in renewals:
            bucket_id = BucketId(namespace_id, each.entity_id, each.resource)
            pending.append(PendingChange(bucket_id, each, clock, deadline, is_counted=False))
        outcomes = await self._cascade.submit_all(pending)
        return [
            _renewal_outcome(renewal, outcome)
            for renewal, outcome in zip(renewals, outcomes, strict=True)
        ]

    async def _settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[Sequence[Unsettled]],
    ) -> None:
        deadline = self._store.deadline()
        pending = [
            PendingChange.of_settlement(namespace_id, each, clock, deadline) for each in settlements
        ]
        try:
            outcomes = await self._cascade.submit_all(pending)
        finally:
            if any(isinstance(each.outcome, MAY_BE_COMMITTED) for each in pending):
                # A part is committed, or may be: the whole must not be repeated.
                receipt.outcome = _unsettled(settlements, pending)
        for outcome in outcomes:
            if isinstance(outcome, ZAELimiterError):
                raise outcome


def _unsettled(
    settlements: Sequence[Settlement], pending: Sequence[PendingChange]
) -> tuple[Unsettled, ...]:
    """Return the settlements that are not known to be stored."""
    found = []
    for settlement, each in zip(settlements, pending, strict=True):
        if isinstance(each.outcome, Applied):
            continue
        is_unknown = each.outcome is None or isinstance(each.outcome, UNKNOWN)
        doubt = (each.lost_write or NO_TRACE) if is_unknown else None
        found.append(Unsettled(settlement, doubt))
    return tuple(found)


def _renewal_outcome(renewal: Renewal, outcome: Outcome) -> RenewalOutcome:
    if isinstance(outcome, Applied):
        held = len(renewal.renewed) + len(renewal.renewed_quotas)
        return outcome.renewed or (None,) * held
    may_be_made = isinstance(outcome, UNKNOWN)
    return RenewalFailure.UNKNOWN if may_be_made else RenewalFailure.NOT_MADE

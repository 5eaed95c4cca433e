"""Buckets in DynamoDB: one conditional write per bucket and charge, no read before it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from zae_limiter._async.engines.dynamodb.buckets.conditional_write import ConditionalWriter
from zae_limiter._async.engines.dynamodb.buckets.group_commit import GroupCommit
from zae_limiter._async.engines.dynamodb.buckets.manual_refill import ManualRefill
from zae_limiter._async.engines.dynamodb.buckets.pausing import BucketPauses
from zae_limiter._async.engines.dynamodb.buckets.queries import BucketQueries, IndexedBuckets
from zae_limiter._async.engines.dynamodb.buckets.resources_in_use import ResourcesInUse
from zae_limiter._async.engines.dynamodb.buckets.upkeep import BucketUpkeep
from zae_limiter._async.engines.dynamodb.buckets.usage_rows import UsageRows
from zae_limiter._async.engines.dynamodb.buckets.write_loop import WriteLoop
from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter._async.engines.dynamodb.sharding.multi_shard import MultiShardWriter
from zae_limiter._async.engines.dynamodb.sharding.resharding import Resharder
from zae_limiter._async.engines.dynamodb.sharding.routing import ShardRouter
from zae_limiter._async.engines.dynamodb.sharding.shard_reader import ShardReader
from zae_limiter._async.tally_keeper import TallyKeeper
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import (
    AcquireEnd,
    Charge,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Renewal,
    RenewalFailure,
    RenewalOutcome,
    Settlement,
)
from zae_limiter.clock import Clock
from zae_limiter.concurrency.async_shield import agather_shielded, ashield
from zae_limiter.concurrency.parallel import agather
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.concurrency.tallies import BucketKey, NotedTallies
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.buckets.pending import Applied, BucketChange, PendingChange
from zae_limiter.dynamodb.cascade import (
    compensation,
    doubtful_first,
    holds_of,
    image_of,
    outcome_holds,
    outcome_without_grant,
)
from zae_limiter.dynamodb.counters import Counters
from zae_limiter.dynamodb.items.bucket import BucketId
from zae_limiter.dynamodb.rejection_cache import RejectionCache
from zae_limiter.dynamodb.sharding.known_shards import KnownShards
from zae_limiter.dynamodb.sharding.throttling import ThrottledItems
from zae_limiter.exceptions import NamespaceStateError, ZAELimiterError
from zae_limiter.models.audit import AuditedChange
from zae_limiter.models.bucket import BucketState, ResourceCapacity
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.transport.calls import Deadline
from zae_limiter.transport.errors import NoAnswer, ServerFault

CHARGE_SHARE = 0.75  # of the time that is left; the rest is for refunds if one bucket rejects
LAST_COUNTS_S = 1.0  # for the counts of all buckets: closing must not take long
AT_ONCE = 16  # writes of counts side by side
MAY_BE_COMMITTED = (Applied, NoAnswer, ServerFault)

logger = quiet_logger(__name__)


class DynamoBuckets:
    """Charges child and parent side by side, and refunds one if the other rejects."""

    def __init__(
        self,
        table: TableContext,
        cache: BucketCache,
        counters: Counters,
        *,
        rejection_cache_ttl: float,
        max_shards: int,
    ) -> None:
        client = self._client = table.client
        self._cache = cache
        self._counters = counters
        self._parallel = table.parallel
        self._rejections = RejectionCache(cache, counters, rejection_cache_ttl)
        reader = ShardReader(client, cache)
        self._queries = BucketQueries(client, reader, table.parallel)
        self._manual_refill = ManualRefill(table, cache, reader)
        self._usage_rows = UsageRows(table)
        self._noted, self._later = NotedTallies(), table.later
        self._tallies = TallyKeeper(self._noted, self._store_due)
        self._table = table
        self._resources = ResourcesInUse(client, table.later)
        self._pauses = BucketPauses(
            table, cache, reader, resources=self._resources, usage_rows=self._usage_rows
        )
        self._write_to_shards(table, reader, max_shards, rejection_cache_ttl)

    def _write_to_shards(
        self, table: TableContext, reader: ShardReader, max_shards: int, fresh_seconds: float
    ) -> None:
        """Build the way of a write: from the router over group commit to one conditional write."""
        client, cache, counters = self._client, self._cache, self._counters
        writer, upkeep, throttled = (
            ConditionalWriter(client),
            BucketUpkeep(table, cache),
            ThrottledItems(),
        )
        group_commit = GroupCommit(
            WriteLoop(
                writer,
                cache,
                upkeep,
                throttled,
                counters=counters,
                resources=self._resources,
                noted=self._noted,
                usage_rows=self._usage_rows,
                table=table,
            )
        )
        usage_rows = self._usage_rows
        multi_shard = MultiShardWriter(
            client,
            writer,
            group_commit,
            reader,
            cache=cache,
            counters=counters,
            usage_rows=usage_rows,
        )
        self.resharder = Resharder(
            client,
            writer,
            reader,
            upkeep,
            cache=cache,
            throttled=throttled,
            counters=counters,
            max_shards=max_shards,
            usage_rows=usage_rows,
        )
        self._router = ShardRouter(
            group_commit,
            multi_shard,
            self.resharder,
            cache=cache,
            reader=reader,
            throttled=throttled,
            counters=counters,
            fresh_seconds=fresh_seconds,
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
        receipt: Receipt[None],
    ) -> None:
        await ashield(partial(self._settle, namespace_id, settlements, clock, receipt))

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
        now_ms: int,
        principal: str | None,
    ) -> bool:
        bucket_id = BucketId(namespace_id, entity_id, resource)
        return await self._manual_refill.top_up(bucket_id, amounts, now_ms, principal)

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

        A caller queued behind another write can be cancelled; once it leads a write, that write
        runs to completion.
        """
        charges = request.charges
        deadline = request.deadline or self._client.deadline()
        pending = _pending(namespace_id, charges[0], request, deadline)
        rejected = self._rejections.judge(pending, request.now_ms)
        if rejected is not None:
            pending.outcome = rejected
        else:
            grant: Grant | None = None
            try:
                await self._router.submit(pending)
            finally:
                applied = pending.outcome
                if type(applied) is Applied:
                    image = applied.image if applied.is_whole else None
                    images = (image or self._seen_later(charges[0], pending, request.clock),)
                    slots = () if applied.moments is None else outcome_holds(charges, [pending])
                    grant = receipt.outcome = Grant(
                        charges=charges, images=images, reservation=applied.reservation, holds=slots
                    )
            if grant is not None:
                return grant
        refusal = receipt.outcome = outcome_without_grant(
            charges, [pending], self._cache, request.clock()
        )
        return refusal

    def _seen_later(
        self, charge: Charge, pending: PendingChange, clock: Clock
    ) -> Callable[[], BucketImage]:
        """Return a function that puts the shards of a bucket together, as they are known now."""
        shards = KnownShards.of(self._cache, pending.bucket_id)
        return lambda: image_of(charge, shards, clock())

    async def close(self) -> None:
        """Store the counts that no write has taken along, and what the background has left.

        Best effort, at most 1 s for each. Raises no outage. May be called twice.
        """
        self._tallies.close()
        if self._noted.by_bucket:
            noted, deadline = list(self._noted.by_bucket), Deadline(LAST_COUNTS_S)
            await ashield(partial(self._store_counts, noted, deadline))
        await self._later.close()

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        self._tallies.count(namespace_id, ended)

    async def _store_due(self, due: list[BucketKey]) -> None:
        await self._store_counts(due, None)

    async def _store_counts(self, buckets: list[BucketKey], deadline: Deadline | None) -> None:
        """Write the counts of buckets, some at a time; those that were not written stay noted."""
        for start in range(0, len(buckets), AT_ONCE):
            batch = buckets[start : start + AT_ONCE]
            if deadline is not None and deadline.left() <= 0:
                return
            await agather(
                self._parallel,
                *[partial(self._store_count, bucket, deadline) for bucket in batch],
            )

    async def _store_count(self, bucket: BucketKey, deadline: Deadline | None) -> None:
        """Write the counts of one bucket, which is created if there is none. Raises no outage."""
        noted = self._noted.by_bucket.get(bucket)
        if noted is None:  # another write has taken them along
            return
        if not self._usage_rows.kept_ms:
            self._noted.take(bucket)
            return
        bucket_id = BucketId(*bucket)
        change = BucketChange(noted.in_force, {}, False, is_count=True)
        pending = PendingChange(bucket_id, change, noted.clock, deadline or self._client.deadline())
        pending.is_counted = False
        try:
            if self._cache.get(pending.shard_id) is None:
                await self._table.refuse_if_purging(bucket_id.namespace_id)
            await self._router.submit(pending)
        except NamespaceStateError:  # everything of the namespace is being deleted
            self._noted.take(bucket)
        except ZAELimiterError:
            logger.debug("could not store counts of %r, will retry", bucket, exc_info=True)
        finally:
            self._noted.postpone(bucket)  # if they are still there

    async def _charge_all(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        return await ashield(partial(self._cascade, namespace_id, request, receipt))

    async def _cascade(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        whole, charges = request.deadline or self._client.deadline(), request.charges
        deadline = Deadline(whole.left() * CHARGE_SHARE)
        pending = [_pending(namespace_id, charge, request, deadline) for charge in charges]
        try:
            await self._charge_each(pending, request.now_ms)
        except BaseException:
            await self._refund(charges, pending, whole)
            raise
        outcome: ChargeOutcome
        images = [
            (each.outcome.image if each.outcome.is_whole else None)
            or self._seen_later(charge, each, request.clock)
            for charge, each in zip(charges, pending, strict=True)
            if isinstance(each.outcome, Applied)
        ]
        if len(images) == len(charges):
            outcome = Grant(charges, images, holds=outcome_holds(charges, pending))
        else:
            await self._refund(charges, pending, whole)
            outcome = outcome_without_grant(charges, pending, self._cache, request.clock())
        receipt.outcome = outcome
        return outcome

    async def _charge_each(self, pending: list[PendingChange], now_ms: int) -> None:
        """Charge all buckets at once, or first those that may reject, the others only after."""
        for each in pending:
            rejected = self._rejections.judge(each, now_ms)
            if rejected is not None:
                each.outcome = rejected
                return
        doubtful = None
        if not all(each.draft is not None and each.draft.fits for each in pending):
            doubtful = doubtful_first(pending, self._cache, now_ms)
        if doubtful is None:
            await self._submit_all(pending)
            return
        for each in doubtful:
            each.draft = None  # its stamp is from before the other's round trip
            if not isinstance(await self._router.submit(each), Applied):
                return

    async def _submit_all(self, pending: list[PendingChange]) -> None:
        await agather_shielded(
            self._parallel, *[partial(self._router.submit, each) for each in pending]
        )

    async def _refund(
        self, charges: tuple[Charge, ...], pending: list[PendingChange], deadline: Deadline
    ) -> None:
        """Refund the bucket that was charged when the other was not."""
        for charge, each in zip(charges, pending, strict=True):
            if not isinstance(each.outcome, Applied):
                continue
            holds = holds_of(charge, each.outcome)
            settlement = compensation(charge, holds)
            change = BucketChange.of_settlement(settlement, -each.change.admitted)
            refund = PendingChange(each.bucket_id, change, each.clock, deadline)
            outcome = await self._router.submit(refund)
            if isinstance(outcome, ZAELimiterError):
                self._counters.add(lost_refunds=1)
                logger.error(
                    "could not refund %r to %r on %r",
                    settlement.amounts_milli,
                    settlement.entity_id,
                    settlement.resource,
                    exc_info=outcome,
                )

    async def _renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        deadline, pending = self._client.deadline(), []
        for entity_id, resource, in_force, holds in renewals:
            change = BucketChange(in_force, {}, False, renewed=holds)
            bucket_id = BucketId(namespace_id, entity_id, resource)
            each = PendingChange(bucket_id, change, clock, deadline)
            each.is_counted = False
            pending.append(each)
        await self._submit_all(pending)
        return [_renewal_outcome(each) for each in pending]

    async def _settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[None],
    ) -> None:
        deadline = self._client.deadline()
        pending = [
            PendingChange(
                BucketId(namespace_id, each.entity_id, each.resource),
                BucketChange.of_settlement(each),
                clock,
                deadline,
            )
            for each in settlements
        ]
        try:
            await self._submit_all(pending)
        finally:
            if any(isinstance(each.outcome, MAY_BE_COMMITTED) for each in pending):
                receipt.outcome = None  # a part is committed, or may be: not to be repeated
        for each in pending:
            if isinstance(each.outcome, ZAELimiterError):
                raise each.outcome


def _renewal_outcome(pending: PendingChange) -> RenewalOutcome:
    outcome = pending.outcome
    if isinstance(outcome, Applied):
        return outcome.moments or (None,) * len(pending.change.renewed)
    may_be_made = isinstance(outcome, NoAnswer | ServerFault)
    return RenewalFailure.UNKNOWN if may_be_made else RenewalFailure.NOT_MADE


def _pending(
    namespace_id: str, charge: Charge, request: ChargeRequest, deadline: Deadline
) -> PendingChange:
    entity_id, resource, in_force, amounts_milli, through_child = charge
    _, clock, _, refreshed, is_acquire, speculative, _, until_ms = request
    admitted = 1 if is_acquire else 0
    change = BucketChange(
        in_force=in_force,
        amounts_milli=amounts_milli,
        is_charge=True,
        admitted=admitted,
        refreshed=refreshed,
        through_child=through_child,
        until_ms=until_ms,
        forfeits=False,
        released=(),
        renewed=(),
        is_count=False,
    )
    bucket_id = BucketId(namespace_id=namespace_id, entity_id=entity_id, resource=resource)
    return PendingChange(bucket_id, change, clock, deadline, not speculative)

"""The bucket port of the embedded engines.

Every method runs an operation of ``zae_limiter.embedded``, which reads, decides and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded.client import EmbeddedClient, Port, lists, reads
from zae_limiter._async.ports import Unsettled
from zae_limiter._async.tally_keeper import TallyKeeper
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.request import (
    AcquireEnd,
    ChargeOutcome,
    ChargeRequest,
    Grant,
    Rejection,
    Renewal,
    RenewalFailure,
    RenewalOutcome,
    Settlement,
)
from zae_limiter.admission.thresholds import (
    Crossing,
    Exhaustion,
    OnExhausted,
    OnThreshold,
    RejectingQuota,
)
from zae_limiter.clock import Clock, Deadline
from zae_limiter.embedded import buckets, housekeeping, retention, tallies
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.audit import AuditedChange
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.locks import LockFreeCount
from zae_limiter.tallies import BucketKey, NotedTallies, NotedTally, TakenTallies

T = TypeVar("T")
logger = quiet_logger(__name__)


class EmbeddedBuckets(Port):
    """Buckets: a child and its parent are charged in one transaction."""

    def __init__(
        self, client: EmbeddedClient, usage_retention_days: int, audit_retention_days: int
    ) -> None:
        super().__init__(client)
        self._retention = (usage_retention_days, audit_retention_days)  # a stored one wins
        self._charges = count(1)
        self._noted = NotedTallies()
        self._tallies = TallyKeeper(self._noted, self._store_due)
        self.granted, self.rejected, self.settled = (LockFreeCount() for _ in range(3))

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: Receipt[ChargeOutcome]
    ) -> ChargeOutcome:
        deadline, noted = request.deadline, self._noted_now()
        raised: list[Crossing] | None = None if request.on_threshold is None else []
        args = (namespace_id, request, noted, raised)
        try:
            outcome = await self._client.write(buckets.charge, args, receipt, deadline=deadline)
        finally:
            if noted is not None and not receipt.has_outcome:
                noted.give_back()
            if raised and receipt.has_outcome:
                _tell(request.on_threshold, raised)
        if type(outcome) is Grant:
            self.granted.add()
        elif type(outcome) is Rejection:
            self.rejected.add()
        if next(self._charges) % housekeeping.EVERY_CHARGES == 0:
            now_and_retention = (request.clock(), *self._retention)
            await self._quietly(housekeeping.keep_house, now_and_retention, deadline)
            await self._store_first(deadline)
        return outcome

    def _noted_now(self) -> TakenTallies | None:
        """Return what takes along the counts of one write; None if nothing is noted."""
        return TakenTallies(self._noted) if self._noted.by_bucket else None

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        self._tallies.count(namespace_id, ended)

    async def mark_exhausted(
        self,
        namespace_id: str,
        rejected: Sequence[RejectingQuota],
        on_exhausted: OnExhausted,
        clock: Clock,
    ) -> None:
        args, receipt = (namespace_id, rejected, clock()), Receipt[list[Exhaustion]]()
        try:
            with suppress(InfrastructureError):  # a later rejection tries again
                if await self._client.read(buckets.are_exhausted, args):
                    await self._client.write(buckets.mark_exhausted, args, receipt)
        finally:
            if receipt.has_outcome:
                for exhaustion in receipt.outcome:
                    on_exhausted(exhaustion)

    async def join_retention(self, named_days: int | None) -> None:
        """Store the retention of usage when opening: if the opener names it, or none is stored.

        Otherwise each program that shares the store would delete by a number of its own.
        """
        stored = await self._client.read(retention.stored_retention, ())
        days = self._retention[0] if stored is None else stored
        if named_days is not None:
            days = named_days
        if days == stored:
            return
        before = await self._client.write(retention.set_retention, (days,))
        if before not in (None, days):
            logger.info("usage is kept for %d days from now on, instead of %d", days, before)

    async def _store_due(self, due: list[BucketKey]) -> None:
        """Store the counts of buckets that no other write has stored in time."""
        for start in range(0, len(due), tallies.BATCH):
            batch = due[start : start + tallies.BATCH]
            taken = {bucket: self._noted.take(bucket) for bucket in batch}
            noted = {bucket: each for bucket, each in taken.items() if each is not None}
            await self._store(noted)

    async def _store_first(self, deadline: Deadline | None = None) -> None:
        """Store the counts that were noted first."""
        noted = self._noted.take_first(tallies.BATCH)
        if noted:
            await self._store(noted, deadline)

    async def _store(
        self, noted: dict[BucketKey, NotedTally], deadline: Deadline | None = None
    ) -> None:
        """Store counts; if the transaction fails, note them again."""
        receipt: Receipt[None] = Receipt()
        try:
            with suppress(InfrastructureError):
                operation = tallies.store_noted
                await self._client.write(operation, (noted,), receipt, deadline=deadline)
        finally:
            if not receipt.has_outcome:
                for bucket, of_bucket in noted.items():
                    self._noted.put_back(bucket, of_bucket)
                    self._noted.postpone(bucket)

    async def close(self) -> None:
        """Store all counts that were noted, if the store takes them."""
        self._tallies.close()
        for _ in range(len(self._noted.by_bucket) // tallies.BATCH + 1):
            await self._store_first()

    async def delete_expired_buckets(self, now_ms: int) -> None:
        """Delete a batch of expired buckets when opening.

        Many clients are closed before they have made enough charges to delete a batch. Usage and
        audit events stay: a client that only reads, such as a command, does not know the retention
        of the clients that charge.
        """
        await self._quietly(housekeeping.delete_expired_buckets, (now_ms,))

    async def _quietly(
        self,
        operation: Callable[..., None],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> None:
        """Run an operation and ignore its errors: damaged old rows must not fail a charge."""
        with suppress(InfrastructureError):
            await self._client.write(operation, args, deadline=deadline)

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: Receipt[Sequence[Unsettled]],
        on_threshold: OnThreshold | None = None,
    ) -> None:
        noted = self._noted_now()
        raised: list[Crossing] | None = None if on_threshold is None else []
        args = (namespace_id, settlements, clock, noted, raised)
        try:
            await self._client.write(buckets.settle, args, receipt, must_run=True)
        finally:
            if noted is not None and not receipt.has_outcome:
                noted.give_back()
            if raised and receipt.has_outcome:
                _tell(on_threshold, raised)
        self.settled.add()

    async def renew(
        self, namespace_id: str, renewals: tuple[Renewal, ...], clock: Clock
    ) -> list[RenewalOutcome]:
        receipt: Receipt[list[RenewalOutcome]] = Receipt()
        with suppress(InfrastructureError):
            args = (namespace_id, renewals, clock)
            return await self._client.write(buckets.renew, args, receipt, must_run=True)
        if receipt.has_outcome:
            return receipt.outcome
        return [RenewalFailure.NOT_MADE] * len(renewals)

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._client.read(buckets.get, (namespace_id, entity_id, resource))

    states = lists(buckets.states)
    page = reads(buckets.page)
    some = lists(buckets.some)
    entries = reads(buckets.entries)
    resources = reads(buckets.resources)
    capacity = lists(buckets.capacity)

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = AuditedChange.by(principal, entity_id, now_ms, resource)
        return await self._client.write(buckets.reset, (namespace_id, change))

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
        change = AuditedChange.by(principal, entity_id, now_ms, resource)
        return await self._client.write(buckets.top_up, (namespace_id, change, amounts, in_force))

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
        return await self._client.write(buckets.pause, (namespace_id, change, until_ms, in_force))


def _tell(on_threshold: OnThreshold | None, raised: list[Crossing]) -> None:
    """Tell of the thresholds that a committed transaction has marked."""
    for crossing in raised:
        if on_threshold is not None:
            on_threshold(crossing)

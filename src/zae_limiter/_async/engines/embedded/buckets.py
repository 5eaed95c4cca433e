"""Buckets of the embedded engines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import ChargeOutcome, ChargeRequest, Settlement
from zae_limiter.clock import Clock
from zae_limiter.embedded import buckets, housekeeping
from zae_limiter.embedded.audit import Change
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.bucket import BucketState, ResourceCapacity


class EmbeddedBuckets:
    """Child and parent are charged in one transaction."""

    def __init__(
        self, client: EmbeddedClient, usage_retention_days: int, audit_retention_days: int
    ) -> None:
        self._client = client
        self._retention = (usage_retention_days, audit_retention_days)
        self._charges = count(1)
        self._history_ms = 0

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        outcome = await self._client.write(buckets.charge, (namespace_id, request), receipt)
        if next(self._charges) % housekeeping.EVERY_CHARGES == 0:
            await self.keep_house(request.clock(), history=True)
        return outcome

    async def keep_house(self, now_ms: int, *, history: bool = False) -> None:
        """Forget a little: now and then, and on opening, as many clients do not live long.

        Whatever is wrong with old rows is no reason to refuse a call.
        """
        with suppress(InfrastructureError):
            await self._client.write(housekeeping.forget_buckets, (now_ms,))
            if history and now_ms - self._history_ms >= housekeeping.HISTORY_EVERY_MS:
                self._history_ms = now_ms
                await self._client.write(housekeeping.forget_history, (now_ms, *self._retention))

    async def settle(
        self,
        namespace_id: str,
        settlements: tuple[Settlement, ...],
        clock: Clock,
        receipt: list[None],
    ) -> None:
        await self._client.write(
            buckets.settle, (namespace_id, settlements, clock), receipt, must_run=True
        )

    async def get(
        self, namespace_id: str, entity_id: str, resource: str, clock: Clock
    ) -> BucketImage | None:
        return await self._client.read(buckets.get, (namespace_id, entity_id, resource))

    async def states(
        self, namespace_id: str, entity_id: str | None, resource: str | None, clock: Clock
    ) -> list[BucketState]:
        return await self._client.list(buckets.states, (namespace_id, entity_id, resource, clock))

    async def capacity(
        self, namespace_id: str, resource: str, limit_name: str, parents_only: bool, clock: Clock
    ) -> ResourceCapacity:
        return await self._client.list(
            buckets.capacity, (namespace_id, resource, limit_name, parents_only, clock)
        )

    async def reset(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = Change(entity_id, now_ms, principal, resource)
        return await self._client.write(buckets.reset, (namespace_id, change))

    async def top_up(
        self,
        namespace_id: str,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        now_ms: int,
        principal: str | None,
    ) -> bool:
        change = Change(entity_id, now_ms, principal, resource)
        return await self._client.write(buckets.top_up, (namespace_id, change, amounts))

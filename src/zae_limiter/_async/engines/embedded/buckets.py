"""Buckets of the embedded engines."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter._async.ports import StoredBucket
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.request import ChargeOutcome, ChargeRequest, Settlement
from zae_limiter.clock import Clock
from zae_limiter.embedded import buckets, housekeeping
from zae_limiter.embedded.audit import Change


class EmbeddedBuckets:
    """Child and parent are charged in one transaction."""

    def __init__(
        self, client: EmbeddedClient, usage_retention_days: int, audit_retention_days: int
    ) -> None:
        self._client = client
        self._retention = (usage_retention_days, audit_retention_days)
        self._charges = count(1)

    async def charge(
        self, namespace_id: str, request: ChargeRequest, receipt: list[ChargeOutcome]
    ) -> ChargeOutcome:
        if next(self._charges) % housekeeping.EVERY_CHARGES == 0:
            await self._client.write(housekeeping.forget, (request.clock(), *self._retention))
        return await self._client.write(buckets.charge, (namespace_id, request), receipt)

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

    async def get(self, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
        return await self._client.read(buckets.get, (namespace_id, entity_id, resource))

    async def of_entity(self, namespace_id: str, entity_id: str) -> list[StoredBucket]:
        rows = await self._client.read(buckets.listing, (namespace_id, entity_id, None))
        return [StoredBucket(*row[1:]) for row in rows]

    async def of_resource(self, namespace_id: str, resource: str) -> list[StoredBucket]:
        rows = await self._client.read(buckets.listing, (namespace_id, None, resource))
        return [StoredBucket(*row[1:]) for row in rows]

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

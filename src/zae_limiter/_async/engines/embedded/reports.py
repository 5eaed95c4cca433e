"""The ports for usage, audit events and documents of the embedded engines.

Every method forwards to an operation of ``zae_limiter.embedded``, which reads, decides and writes.
What each promises is said in ``zae_limiter._async.ports``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import (
    history,
    namespaces,
)
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.batch import Guard
from zae_limiter.models.usage import UsageRanking, UsageSnapshot, UsageSummary
from zae_limiter.usage.report import UsageQuery


class EmbeddedUsage:
    """Usage windows, closed and open."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def page(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        query: UsageQuery,
        *,
        limit: int,
        next_key: str | None,
    ) -> tuple[list[UsageSnapshot], str | None]:
        return await self._client.list(
            partial(history.usage_page, limit=limit, next_key=next_key),
            (namespace_id, entity_id, resource, query),
        )

    async def summary(
        self, namespace_id: str, entity_id: str | None, resource: str | None, query: UsageQuery
    ) -> UsageSummary:
        return await self._client.list(
            history.usage_summary, (namespace_id, entity_id, resource, query)
        )

    async def top(
        self, namespace_id: str, resource: str | None, query: UsageQuery, by: str | None, limit: int
    ) -> UsageRanking:
        return await self._client.list(
            history.usage_top, (namespace_id, resource, query, by, limit)
        )


class EmbeddedAudit:
    """Audit events, newest first."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def events(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        return await self._client.list(
            history.events, (namespace_id, entity_id, before_event_id, limit)
        )


class EmbeddedDocuments:
    """Small JSON documents by key."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        return await self._client.read(namespaces.get_document, (namespace_id, key))

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        await self._client.write(namespaces.put_document, (namespace_id, key, value))

    async def replace(
        self,
        namespace_id: str,
        key: str,
        value: dict[str, Any],
        *,
        revision: str | None,
        guard: Guard | None = None,
    ) -> bool:
        return await self._client.write(
            partial(namespaces.replace_document, revision=revision, guard=guard),
            (namespace_id, key, value),
        )

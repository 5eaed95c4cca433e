"""An embedded engine: its ports over one client, and its counts."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.buckets import EmbeddedBuckets
from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter._async.engines.embedded.records import (
    EmbeddedAudit,
    EmbeddedConfigs,
    EmbeddedDocuments,
    EmbeddedEntities,
    EmbeddedNamespaces,
    EmbeddedUsage,
)
from zae_limiter.embedded.tables import Tables
from zae_limiter.models.backend import BackendCapabilities, StoreStats
from zae_limiter.settings import Settings


class EmbeddedEngine:
    """An embedded engine: all ports over one client."""

    def __init__(
        self,
        client: EmbeddedClient,
        capabilities: BackendCapabilities,
        settings: Settings,
        usage_retention_days: int,
        *,
        request_timeout: float | None = None,
    ) -> None:
        self.capabilities = capabilities
        self.answered_s = None
        self.request_timeout = request_timeout
        self._client = client
        self.buckets = EmbeddedBuckets(
            client,
            usage_retention_days
            if settings.usage_retention_days is None
            else settings.usage_retention_days,
            settings.audit_retention_days,
        )
        self.configs = EmbeddedConfigs(client)
        self.entities = EmbeddedEntities(client)
        self.namespaces = EmbeddedNamespaces(client)
        self.usage = EmbeddedUsage(client)
        self.audit = EmbeddedAudit(client)
        self.documents = EmbeddedDocuments(client)

    def stats(self) -> StoreStats:
        """Return the counts of charges and settlements; an embedded store has no requests."""
        granted, settlements = self.buckets.granted.value(), self.buckets.settled.value()
        rejected = self.buckets.rejected.value()
        groups, grouped, largest_group = self._client.groups()
        return StoreStats(
            charges=granted + rejected,
            granted=granted,
            rejected=rejected,
            settlements=settlements,
            calls=granted + rejected + settlements,
            writes=granted + settlements,
            groups=groups,
            grouped=grouped,
            largest_group=largest_group,
        )

    async def ping(self) -> None:
        await self.namespaces.all()

    async def probe(self) -> None:
        """Raise an error unless the store takes writes; reads may succeed when writes fail."""
        await self._client.write(_nothing, ())

    async def close(self) -> None:
        await self.buckets.close()
        await self._client.close()

    async def delete_all(self) -> None:
        await self._client.write(_clear, ())


def _nothing(tables: Tables) -> None:
    """Take the lock of a write, and change nothing."""


def _clear(tables: Tables) -> None:
    tables.clear()

"""The ports over a client that runs operations in a transaction: shared by memory and SQLite."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.buckets import EmbeddedBuckets
from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter._async.engines.embedded.configs import EmbeddedConfigs
from zae_limiter._async.engines.embedded.entities import EmbeddedEntities
from zae_limiter._async.engines.embedded.history import EmbeddedAudit, EmbeddedUsage
from zae_limiter._async.engines.embedded.namespaces import EmbeddedNamespaces
from zae_limiter._async.engines.embedded.records import EmbeddedRecords
from zae_limiter.embedded.tables import Tables
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.stats import StoreStats

__all__ = ["EmbeddedClient", "EmbeddedEngine"]


class EmbeddedEngine:
    """All ports over one client."""

    def __init__(
        self,
        client: EmbeddedClient,
        capabilities: BackendCapabilities,
        *,
        usage_retention_days: int,
        audit_retention_days: int,
    ) -> None:
        self.capabilities = capabilities
        self._client = client
        self.buckets = EmbeddedBuckets(client, usage_retention_days, audit_retention_days)
        self.configs = EmbeddedConfigs(client)
        self.entities = EmbeddedEntities(client)
        self.namespaces = EmbeddedNamespaces(client)
        self.usage = EmbeddedUsage(client)
        self.audit = EmbeddedAudit(client)
        self.records = EmbeddedRecords(client)

    def stats(self) -> StoreStats:
        return StoreStats()

    async def ping(self) -> None:
        await self.namespaces.all()

    async def close(self) -> None:
        await self._client.close()

    async def delete_all(self) -> None:
        await self._client.write(_clear, ())


def _clear(tables: Tables) -> None:
    tables.clear()

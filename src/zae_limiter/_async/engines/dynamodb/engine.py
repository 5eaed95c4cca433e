"""All ports over one table."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.audit import DynamoAudit
from zae_limiter._async.engines.dynamodb.buckets import DynamoBuckets
from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.configs import DynamoConfigs
from zae_limiter._async.engines.dynamodb.entities import DynamoEntities
from zae_limiter._async.engines.dynamodb.namespaces import DynamoNamespaces
from zae_limiter._async.engines.dynamodb.provisioning import remove_table
from zae_limiter._async.engines.dynamodb.records import DynamoRecords
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter._async.engines.dynamodb.usage import DynamoUsage
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.dynamodb.known import Known
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.stats import StoreStats
from zae_limiter.naming import RESERVED_NAMESPACE

VERSION_RECORD = "version"

CAPABILITIES = BackendCapabilities(
    engine="dynamodb",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=False,
    usage_history=False,
    infrastructure=True,
)


class DynamoEngine:
    """One table, one client, and what the client has seen of it."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        client: DynamoClient,
        parallel: Parallel,
        *,
        audit_retention_days: int,
        rejection_cache_ttl: float,
        max_shards: int,
    ) -> None:
        self._client = client
        self._parallel = parallel
        known = Known()
        store = Store(client, known, parallel, audit_retention_days)
        self.buckets = DynamoBuckets(
            store,
            known,
            client.counters,
            rejection_cache_ttl=rejection_cache_ttl,
            max_shards=max_shards,
        )
        self.configs = DynamoConfigs(store)
        self.entities = DynamoEntities(store)
        self.namespaces = DynamoNamespaces(store)
        self.usage = DynamoUsage(store)
        self.audit = DynamoAudit(store)
        self.records = DynamoRecords(store)

    def stats(self) -> StoreStats:
        return self._client.counters.read()

    async def ping(self) -> None:
        await self.records.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def close(self) -> None:
        await self._client.close()
        self._parallel.close()

    async def delete_all(self) -> None:
        """Remove the table itself."""
        await remove_table(self._client)

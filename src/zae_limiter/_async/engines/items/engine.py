"""The DynamoDB engine: all ports over one table."""

from __future__ import annotations

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.provisioning import remove_table
from zae_limiter._async.engines.items.audit import DynamoAudit
from zae_limiter._async.engines.items.bucket_port import DynamoBuckets
from zae_limiter._async.engines.items.configs import DynamoConfigs
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.documents import DynamoDocuments
from zae_limiter._async.engines.items.entities import DynamoEntities
from zae_limiter._async.engines.items.namespaces import DynamoNamespaces
from zae_limiter._async.engines.items.usage.port import DynamoUsage
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.models.backend import BackendCapabilities, StoreStats
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.settings import Settings

CAPABILITIES = BackendCapabilities(
    engine="dynamodb",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=False,
    usage_history=True,
    infrastructure=True,
)


class DynamoEngine:
    """One table, reached through one client, with a cache of the buckets that it has seen."""

    capabilities = CAPABILITIES

    def __init__(self, client: DynamoClient, settings: Settings) -> None:
        self._client = self.client = client
        self.snapshot_windows = settings.snapshot_windows
        self.request_timeout = client.request_timeout
        self._parallel = Parallel(settings.parallel_mode, warns=False)
        cache = BucketCache()
        context = self._context = TableContext(
            client, cache, self._parallel, settings.audit_retention_days
        )
        self.buckets = DynamoBuckets(
            context,
            cache,
            client.counters,
            rejection_cache_ttl=settings.rejection_cache_ttl,
            max_shards=settings.max_shards,
        )
        self.configs = DynamoConfigs(context)
        self.entities = DynamoEntities(context)
        self.namespaces = DynamoNamespaces(context)
        self.usage = DynamoUsage(context)
        self.audit = DynamoAudit(context)
        self.documents = DynamoDocuments(context)

    @property
    def answered_s(self) -> float:
        """The moment of the server's last answer, which may be a refusal or a fault."""
        return self._client.answered_s

    def keep_usage(self, days: int) -> None:
        """Set for how many days usage is kept; 0 keeps none."""
        self._context.keep_usage(days)

    def keep_audit(self, days: int) -> None:
        """Set for how many days audit events are kept."""
        self._context.audit_days = days

    def stats(self) -> StoreStats:
        return self._client.counters.read()

    async def ping(self) -> None:
        await self.documents.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def close(self) -> None:
        await self.buckets.close()
        await self._client.close()
        self._parallel.close()

    async def delete_all(self) -> None:
        """Delete the table itself."""
        await remove_table(self._client)

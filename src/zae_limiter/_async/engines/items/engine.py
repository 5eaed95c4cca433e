"""The engine over a store of items: all ports."""

from __future__ import annotations

from zae_limiter._async.engines.items.audit import ItemAudit
from zae_limiter._async.engines.items.bucket_port import ItemBuckets
from zae_limiter._async.engines.items.configs import ItemConfigs
from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.documents import ItemDocuments
from zae_limiter._async.engines.items.entities import ItemEntities
from zae_limiter._async.engines.items.namespaces import ItemNamespaces
from zae_limiter._async.engines.items.port import ItemStore
from zae_limiter._async.engines.items.usage.reading import ItemUsage
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.models.backend import BackendCapabilities, StoreStats
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.settings import Settings


class ItemsEngine:
    """One store of items, with a cache of the buckets that it has seen."""

    def __init__(
        self,
        store: ItemStore,
        settings: Settings,
        capabilities: BackendCapabilities,
        parallel: Parallel,
    ) -> None:
        self._store = store
        self.capabilities = capabilities
        self.snapshot_windows = settings.snapshot_windows
        self.request_timeout = store.request_timeout
        self._parallel = parallel
        cache = BucketCache()
        context = self._context = TableContext(
            store, cache, parallel, settings.audit_retention_days
        )
        self.buckets = ItemBuckets(
            context,
            cache,
            store.counters,
            rejection_cache_ttl=settings.rejection_cache_ttl,
            max_shards=settings.max_shards,
        )
        self.configs = ItemConfigs(context)
        self.entities = ItemEntities(context)
        self.namespaces = ItemNamespaces(context)
        self.usage = ItemUsage(context)
        self.audit = ItemAudit(context)
        self.documents = ItemDocuments(context)

    @property
    def answered_s(self) -> float:
        """The moment of the store's last answer, which may be a refusal or a fault."""
        return self._store.answered_s

    def keep_usage(self, days: int) -> None:
        """Set for how many days usage is kept; 0 keeps none."""
        self._context.keep_usage(days)

    def keep_audit(self, days: int) -> None:
        """Set for how many days audit events are kept."""
        self._context.audit_days = days

    def stats(self) -> StoreStats:
        return self._store.counters.read()

    async def ping(self) -> None:
        await self.documents.get(RESERVED_NAMESPACE, VERSION_RECORD)

    async def probe(self) -> None:
        await self.ping()

    async def close(self) -> None:
        await self.buckets.close()
        await self._store.close()
        self._parallel.close()

    async def delete_all(self) -> None:
        """Delete the store itself."""
        await self._store.remove()

"""The repository: a facade over an engine's ports, bound to one namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter._async.ports import Engine
from zae_limiter._async.repository.buckets import BucketPart
from zae_limiter._async.repository.context import check_multiplier
from zae_limiter._async.repository.entities import EntityPart
from zae_limiter._async.repository.history import HistoryPart
from zae_limiter._async.repository.limits import LimitPart
from zae_limiter._async.repository.namespaces import NamespacePart
from zae_limiter._async.repository.records import RecordPart
from zae_limiter.clock import Clock
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.stats import StoreStats
from zae_limiter.naming import check_namespace

if TYPE_CHECKING:
    from zae_limiter._async.builder import RepositoryBuilder

__all__ = ["Repository"]


class Repository(EntityPart, LimitPart, BucketPart, NamespacePart, HistoryPart, RecordPart):
    """Data access for one namespace of one store. Open it with ``await Repository.open()``."""

    @classmethod
    async def open(
        cls,
        namespace: str | None = None,
        *,
        url: str | None = None,
        stack: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        config_cache_ttl: float = 60,
        auto_update: bool = True,
        provision: str = "stack",
        rejection_cache_ttl: float = 1.0,
        max_shards: int = 32,
        request_timeout: float = 2.0,
        transport: str = "auto",
        clock: Clock | None = None,
        # sync: parallel_mode: str = "auto",
    ) -> Repository:
        """Open a store and a namespace of it, making both where they do not exist.

        ``url`` (or ``ZAEL_URL``) chooses the engine: ``memory://``, ``memory://name``,
        ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or
        ``dynamodb://STACK?region=…&endpoint_url=…&transport=…``. Without one it is DynamoDB,
        with ``stack`` (or ``ZAEL_STACK``, or ``"zae-limiter"``), ``region`` and
        ``endpoint_url``; a missing table is made with ``provision="table"``. ``namespace``
        defaults to ``ZAEL_NAMESPACE`` or ``"default"``. No call waits longer than
        ``request_timeout`` seconds for a store that does not answer.
        """
        builder = cls.builder().namespace(namespace).stack(stack).url(url)
        builder.region(region).endpoint_url(endpoint_url)
        builder.config_cache_ttl(config_cache_ttl).auto_update(auto_update)
        builder.provision(provision).request_timeout(request_timeout).clock(clock)
        builder.max_shards(max_shards).rejection_cache_ttl(rejection_cache_ttl).transport(transport)
        # sync: builder.parallel_mode(parallel_mode)
        return await builder.register_missing_namespace().build()

    @classmethod
    async def over(
        cls,
        engine: Engine,
        namespace: str | None = None,
        *,
        config_cache_ttl: float = 60,
        clock: Clock | None = None,
    ) -> Repository:
        """A repository over an engine of your own, which it closes with itself."""
        builder = cls.builder().namespace(namespace).config_cache_ttl(config_cache_ttl)
        return await builder.clock(clock).register_missing_namespace().over(engine)

    @staticmethod
    def builder() -> RepositoryBuilder:
        """Step by step, for what ``open`` has no argument for."""
        from zae_limiter._async.builder import RepositoryBuilder

        return RepositoryBuilder()

    async def namespace(
        self,
        name: str,
        *,
        on_unavailable: OnUnavailable | str | None = None,
        bucket_ttl_multiplier: int | None = None,
    ) -> Repository:
        """A repository for another namespace of the same store; shares connection and caches.

        Raises NamespaceNotFoundError unless it is registered.
        """
        found = await self._context.engine.namespaces.find(check_namespace(name))
        if found is None:
            raise NamespaceNotFoundError(name)
        policy = None if on_unavailable is None else OnUnavailable.parse(on_unavailable)
        return Repository(
            self._context.scoped(
                found.namespace_id, name, policy, check_multiplier(bucket_ttl_multiplier)
            )
        )

    def with_settings(
        self,
        on_unavailable: OnUnavailable | str | None = None,
        bucket_ttl_multiplier: int | None = None,
        clock: Clock | None = None,
    ) -> Repository:
        """The same repository with settings that a limiter brings."""
        if on_unavailable is None and bucket_ttl_multiplier is None and clock is None:
            return self
        context = self._context
        settled = context.scoped(
            context.namespace_id,
            context.namespace_name,
            None if on_unavailable is None else OnUnavailable.parse(on_unavailable),
            check_multiplier(bucket_ttl_multiplier),
        )
        return Repository(replace(settled, clock=clock or context.clock))

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the engine can do."""
        return self._context.engine.capabilities

    @property
    def stack_name(self) -> str:
        """The stack, or the place of an embedded store."""
        return self._context.stack_name

    @property
    def lost_settlements(self) -> int:
        """Adjustments and refunds that an outage kept from being written; each is logged."""
        return self._context.lost_settlements.value + self.get_stats().lost_refunds

    @property
    def uncharged_admissions(self) -> int:
        """Calls that an outage let through without a charge; logged every ten seconds."""
        return self._context.uncharged.value

    def get_stats(self) -> StoreStats:
        """Calls, writes and their outcomes since the store was opened."""
        return self._context.engine.stats()

    async def ping(self) -> bool:
        """True if the store answers; raises what is wrong otherwise."""
        await self._context.engine.ping()
        return True

    async def ensure_infrastructure(self) -> None:
        """An open repository has what it needs."""
        await self._context.engine.ping()

    async def delete_table(self) -> None:
        """Remove everything that the store holds, of all namespaces. There is no way back."""
        await self._context.engine.delete_all()
        self._context.cache.clear()

    async def close(self) -> None:
        """Finish what is under way and let go of the store. Scoped repositories close with it.

        Closing a scoped repository leaves the store to the one that opened it.
        """
        if self._context.owns_engine:
            await self._context.engine.close()
            self._context.parallel.close()

    async def __aenter__(self) -> Repository:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

"""The repository: the methods of an engine's ports, bound to one namespace."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from zae_limiter._async.repository.buckets import BucketMethods
from zae_limiter._async.repository.charging import ChargeService
from zae_limiter._async.repository.context import Context
from zae_limiter._async.repository.entities import EntityMethods
from zae_limiter._async.repository.history import HistoryMethods
from zae_limiter._async.repository.infrastructure import (
    InfrastructureMethods,
    StackPlace,
    Unopened,
)
from zae_limiter._async.repository.limits import LimitMethods
from zae_limiter._async.repository.namespaces import DocumentMethods, NamespaceMethods
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.runtime.background import ALastCalls
from zae_limiter.runtime.calls import Opening  # unasync: remove
from zae_limiter.runtime.unpicklable import Unpicklable
from zae_limiter.settings import Settings, check_policy, check_ttl_multiplier

if TYPE_CHECKING:
    from zae_limiter._async.builder import RepositoryBuilder
    from zae_limiter._async.ports import Engine
    from zae_limiter.clock import Clock
    from zae_limiter.models.backend import BackendCapabilities, StoreStats
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.config import OutagePolicy
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.stack import StackOptions
    from zae_limiter.settings import Provision

    # sync: from zae_limiter.settings import ParallelMode

__all__ = ["Repository", "RepositoryProtocol"]

DEFAULT_CLOSE_S = 2.0  # for ends of blocks, on a store that never waits
LAST_CALLS_S = 5.0  # before a store closes, settlements of dropped streams have this much time


class Repository(
    EntityMethods,
    LimitMethods,
    BucketMethods,
    NamespaceMethods,
    HistoryMethods,
    DocumentMethods,
    Unpicklable,
    InfrastructureMethods,
):
    """Data access for one namespace of one store. Open it with ``await Repository.open()``."""

    def __init__(
        self,
        name: Context | str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        stack_options: StackOptions | None = None,
        config_cache_ttl: float = 60,
    ) -> None:
        """Name a stack, which ``await ensure_infrastructure()`` opens. This is deprecated."""
        if isinstance(name, Context):
            self._context = name
            self.charging = ChargeService(name)
            return
        warnings.warn(
            "constructing it is deprecated; use Repository.open() or Repository.builder()",
            DeprecationWarning,
            stacklevel=2,
        )
        from zae_limiter._async.open import stack_to_open

        settings = Settings(register=True).given(
            stack=name,
            region=region,
            endpoint_url=endpoint_url,
            stack_options=stack_options,
            config_cache_ttl=config_cache_ttl,
        )
        self._unopened = Unopened(settings, StackPlace(stack_to_open(name), region, endpoint_url))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Explain that a repository was constructed but not opened."""
            if name in ("_context", "charging"):
                raise InfrastructureError(
                    "this repository is not open: await ensure_infrastructure() first, or use "
                    "Repository.open()"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def open(
        cls,
        namespace: str | None = None,
        *,
        url: str | None = None,
        stack: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        config_cache_ttl: float = 60,
        auto_update: bool = True,
        provision: Provision = "stack",
        rejection_cache_ttl: float = 1.0,
        max_shards: int = 32,
        request_timeout: float = 2.0,
        clock: Clock | None = None,
        # sync: parallel_mode: ParallelMode = "auto",
    ) -> OpenedRepository:
        """Open a store and a namespace of it; both are created if they do not exist.

        ``repo = await Repository.open()``, or ``async with Repository.open() as repo:``.

        ``url`` (or ``ZAEL_URL``) chooses the engine: ``memory://``, ``memory://name``,
        ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or
        ``dynamodb://STACK?region=…&endpoint_url=…``. Without a URL the engine is DynamoDB,
        with ``stack`` (or ``ZAEL_STACK``, or ``"zae-limiter"``), ``region`` and
        ``endpoint_url``; ``provision`` says what is deployed if the table is missing.
        ``auto_update`` updates functions of an older version. ``namespace`` defaults to
        ``ZAEL_NAMESPACE`` or ``"default"``. If the store does not answer, a call waits at
        most ``request_timeout`` seconds.
        """
        from zae_limiter._async.open import open_repository

        settings = Settings(register=True).given(
            namespace=namespace,
            url=url,
            stack=stack,
            region=region,
            endpoint_url=endpoint_url,
            config_cache_ttl=config_cache_ttl,
            auto_update=auto_update,
            provision=provision,
            rejection_cache_ttl=rejection_cache_ttl,
            max_shards=max_shards,
            request_timeout=request_timeout,
            clock=clock,
            # sync: parallel_mode=parallel_mode,
        )
        return Opening(open_repository(settings))  # unasync: remove
        # sync: return open_repository(settings)

    @classmethod
    async def over(
        cls,
        engine: Engine,
        namespace: str | None = None,
        *,
        config_cache_ttl: float = 60,
        clock: Clock | None = None,
    ) -> Repository:
        """Return a repository over your own engine. Closing the repository closes the engine."""
        from zae_limiter._async.open import repository_over

        settings = Settings(namespace, register=True)
        settings = settings.given(config_cache_ttl=config_cache_ttl, clock=clock)
        return await repository_over(engine, type(engine).__name__, settings)

    @staticmethod
    def builder() -> RepositoryBuilder:
        """Return a builder, which has more settings than ``open`` has arguments."""
        from zae_limiter._async.builder import RepositoryBuilder

        return RepositoryBuilder()

    async def namespace(
        self,
        name: str,
        *,
        on_unavailable: OutagePolicy | None = None,
        bucket_ttl_multiplier: int | None = None,
    ) -> Repository:
        """Return a repository for another namespace, which shares connection and caches.

        Raise NamespaceNotFoundError unless the namespace is registered.
        """
        namespace = await self.get_namespace(name)
        return Repository(
            self._context.scoped(
                namespace.namespace_id,
                name,
                check_policy(on_unavailable),
                _ttl_multiplier(bucket_ttl_multiplier),
            )
        )

    def with_settings(
        self,
        on_unavailable: OutagePolicy | None = None,
        bucket_ttl_multiplier: int | None = None,
        clock: Clock | None = None,
    ) -> Repository:
        """Return this repository with other settings; None keeps a setting."""
        if on_unavailable is None and bucket_ttl_multiplier is None and clock is None:
            return self
        context = self._context
        scoped = context.scoped(
            context.namespace_id,
            context.namespace_name,
            check_policy(on_unavailable),
            _ttl_multiplier(bucket_ttl_multiplier),
        )
        return Repository(replace(scoped, clock=clock or context.clock))

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities of the engine."""
        return self._context.engine.capabilities

    @property
    def stack_name(self) -> str:
        """The name of the stack; for an embedded store, its file or name."""
        return self._context.stack_name if self._unopened is None else self._unopened.place.name

    @property
    def lost_settlements(self) -> int:
        """The number of ends of blocks that were given up; each is logged.

        An end that is still repeated in the background does not count, see ``pending_settlements``.
        Refunds of rejected cascades that an outage has lost are included.
        """
        return self._context.lost_settlements.value + self.get_stats().lost_refunds

    @property
    def pending_settlements(self) -> int:
        """The number of ends of blocks that the store has not taken yet, and that are repeated."""
        return len(self._context.pending_ends)

    @property
    def uncharged_admissions(self) -> int:
        """The number of calls that were admitted uncharged in outages, which are logged."""
        return self._context.uncharged.value

    def get_stats(self) -> StoreStats:
        """Return counts of calls, writes and their outcomes since the store was opened."""
        context = self._context
        return replace(context.engine.stats(), **context.breaker.stats())

    async def ping(self) -> bool:
        """Return True if the store answers; otherwise raise an error that says what is wrong."""
        await self._context.engine.ping()
        return True

    async def ensure_infrastructure(self) -> None:
        """Open a constructed repository, and deploy its stack if it is missing.

        If the repository is open, only check that the store answers.
        """
        if self._unopened is None:
            await self._context.engine.ping()
            return
        from zae_limiter._async.open import open_repository

        opened = await open_repository(self._unopened.settings)
        vars(self).update(vars(opened), _unopened=None)

    @property
    def is_open(self) -> bool:
        """Whether the repository can be used; False only after the deprecated constructor."""
        return self._unopened is None

    async def close(self, *, timeout: float | None = None) -> None:
        """Finish calls under way and close the store, which also closes scoped repositories.

        Closing a scoped repository leaves the store open. Ends of blocks that the store has not
        taken yet are tried for up to ``timeout`` seconds, by default for ``request_timeout``; those
        that are not stored then are given up: logged and counted in ``lost_settlements``.
        """
        if self._unopened is not None:
            return
        if self._context.owns_engine:
            await ALastCalls.wait(LAST_CALLS_S)
            request_timeout = self.charging.request_timeout or DEFAULT_CLOSE_S
            seconds = request_timeout if timeout is None else timeout
            await self._context.pending_ends.close(seconds)
            self._context.breaker.stop()
            self.charging.close()
            await self._context.engine.close()
            self._context.parallel.close()

    def __repr__(self) -> str:
        if self._unopened is not None:
            return f"{type(self).__name__}({self.stack_name}, not open)"
        context = self._context
        place = f"{self.capabilities.engine} {context.stack_name}".strip()
        return f"{type(self).__name__}({place}, namespace {context.namespace_name!r})"

    async def __aenter__(self) -> Repository:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


OpenedRepository: TypeAlias = Opening[Repository]  # unasync: remove
# sync: OpenedRepository: TypeAlias = Repository


@runtime_checkable
class RepositoryProtocol(Protocol):
    """A repository over any engine, for type annotations.

    For your own engine, see ``Repository.over``.
    """

    charging: ChargeService

    @property
    def namespace_id(self) -> str:
        """The opaque id that every key starts with."""

    @property
    def namespace_name(self) -> str:
        """The name of the namespace."""

    @property
    def stack_name(self) -> str:
        """The name of the store."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities of the engine."""

    async def get_entity(self, entity_id: str) -> Entity | None:
        """Return an entity; None if it is not registered."""

    async def get_buckets(self, entity_id: str, resource: str | None = None) -> list[BucketState]:
        """Return all buckets of an entity, or those on one resource."""

    async def ping(self) -> bool:
        """Return True if the store answers; otherwise raise an error that says what is wrong."""

    async def close(self) -> None:
        """Finish calls under way and close connections."""


def _ttl_multiplier(value: int | None) -> int | None:
    return None if value is None else check_ttl_multiplier(value)

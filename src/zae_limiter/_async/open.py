"""The composition root: settings to engine to repository."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from zae_limiter._async.config_cache import ConfigCache
from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter._async.engines.memory import open_memory
from zae_limiter._async.ports import Engine
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.context import Context
from zae_limiter.clock import Clock, HostClock, ServerClock
from zae_limiter.concurrency.parallel import Parallel
from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.config import OnUnavailable
from zae_limiter.naming import check_namespace, check_stack_name
from zae_limiter.store_url import StoreUrl, check_region, check_transport, parse_url

DEFAULT_NAMESPACE = "default"
DEFAULT_STACK = "zae-limiter"


@dataclass(frozen=True)
class Settings:
    """All that a builder may have been told."""

    namespace: str | None = None
    stack: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    url: str | None = None
    config_cache_ttl: float = 60
    auto_update: bool = True
    bucket_ttl_multiplier: int = 7
    on_unavailable: OnUnavailable | None = None
    usage_retention_days: int = 90
    audit_retention_days: int = 90
    provision: str = "stack"
    request_timeout: float = 2.0
    rejection_cache_ttl: float = 1.0
    max_shards: int = 32
    transport: str = "auto"
    clock: Clock | None = None
    register: bool = False
    parallel_mode: str = "auto"


async def open_repository(settings: Settings) -> Repository:
    """Open the engine that the URL names, and the namespace."""
    place = _place(settings)
    _namespace(settings)  # a bad name is found before anything is made
    clock = settings.clock or _clock(place.engine)
    open_engine = _open_dynamodb if place.engine == "dynamodb" else _open_embedded
    engine = await open_engine(place, settings, clock)
    return await repository_over(engine, place.place, replace(settings, clock=clock))


async def repository_over(engine: Engine, stack_name: str, settings: Settings) -> Repository:
    """A repository over an open engine, which is closed if that fails."""
    clock, name = settings.clock or HostClock(), _namespace(settings)
    try:
        parallel = Parallel(settings.parallel_mode, useful=not engine.capabilities.atomic_cascade)
        namespace_id = await _namespace_id(engine, name, settings.register, clock())
    except BaseException:
        await engine.close()
        raise
    return Repository(
        Context(
            engine=engine,
            cache=ConfigCache(settings.config_cache_ttl),
            clock=clock,
            parallel=parallel,
            namespace_id=namespace_id,
            namespace_name=name,
            stack_name=stack_name,
            on_unavailable=settings.on_unavailable,
            bucket_ttl_multiplier=settings.bucket_ttl_multiplier,
        )
    )


def _namespace(settings: Settings) -> str:
    return check_namespace(
        settings.namespace or os.environ.get("ZAEL_NAMESPACE") or DEFAULT_NAMESPACE
    )


def _place(settings: Settings) -> StoreUrl:
    url = settings.url or os.environ.get("ZAEL_URL")
    if url is not None:
        return parse_url(url)
    stack = settings.stack or os.environ.get("ZAEL_STACK") or DEFAULT_STACK
    return StoreUrl("dynamodb", check_stack_name(stack), {})


def _clock(engine: str) -> Clock:
    """The host's, or for a server that others share, that of the server."""
    return ServerClock() if engine == "dynamodb" else HostClock()


async def _open_dynamodb(place: StoreUrl, settings: Settings, clock: Clock) -> Engine:
    from zae_limiter._async.engines.dynamodb.opening import open_dynamodb

    return await open_dynamodb(
        place.place,
        region=check_region(place.options.get("region") or settings.region),
        endpoint_url=place.options.get("endpoint_url") or settings.endpoint_url,
        provision=settings.provision,
        request_timeout=settings.request_timeout,
        clock=clock,
        parallel_mode=settings.parallel_mode,
        audit_retention_days=settings.audit_retention_days,
        rejection_cache_ttl=settings.rejection_cache_ttl,
        max_shards=settings.max_shards,
        transport=check_transport(place.options.get("transport", settings.transport)),
    )


async def _open_embedded(place: StoreUrl, settings: Settings, clock: Clock) -> Engine:
    engine = await _embedded(place, settings)
    try:
        await engine.buckets.keep_house(clock())
    except BaseException:
        await engine.close()
        raise
    return engine


async def _embedded(place: StoreUrl, settings: Settings) -> EmbeddedEngine:
    usage_days, audit_days = settings.usage_retention_days, settings.audit_retention_days
    if place.engine == "memory":
        return open_memory(
            place.place, usage_retention_days=usage_days, audit_retention_days=audit_days
        )
    from zae_limiter._async.engines.sqlite import open_sqlite

    return await open_sqlite(
        place.place,
        synchronous=place.options.get("synchronous", "NORMAL"),
        timeout_s=settings.request_timeout,
        usage_retention_days=usage_days,
        audit_retention_days=audit_days,
    )


async def _namespace_id(engine: Engine, name: str, register: bool, now_ms: int) -> str:
    if register or name == DEFAULT_NAMESPACE:
        names = tuple(dict.fromkeys((DEFAULT_NAMESPACE, name)))
        found = await engine.namespaces.find(name)
        if found is not None:
            return found.namespace_id
        return (await engine.namespaces.register(names, now_ms))[name]
    found = await engine.namespaces.find(name)
    if found is None:
        raise NamespaceNotFoundError(name)
    return found.namespace_id

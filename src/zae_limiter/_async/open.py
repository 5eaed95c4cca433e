"""The opening of a repository: settings lead to an engine, and to a namespace of its store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zae_limiter._async.circuit import Breaker
from zae_limiter._async.config_cache import MAX_ENTRIES, MAX_LOCAL_ENTRIES, ConfigCache
from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter._async.engines.memory import open_memory
from zae_limiter._async.ports import Engine
from zae_limiter._async.repository import Repository
from zae_limiter._async.repository.context import Context
from zae_limiter.clock import Clock, HostClock, ServerClock, SharedClock
from zae_limiter.exceptions import NamespaceNotFoundError, ValidationError
from zae_limiter.naming import (
    DEFAULT_NAMESPACE,
    DEFAULT_STACK,
    check_namespace,
    check_stack_name,
)
from zae_limiter.runtime.parallel import Parallel
from zae_limiter.settings import Settings, named_namespace
from zae_limiter.store_url import StoreUrl, check_region, masked_url, parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter.models.backend import MigrationProgress, MigrationReport


async def open_repository(settings: Settings) -> Repository:
    """Open the engine that the URL names, and the namespace."""
    url = _store_url(settings)
    _namespace(settings)  # raises for a bad name before a file or a table is created
    clock = settings.clock or _default_clock(url.engine)
    settings = settings._replace(clock=clock)
    if url.engine == "dynamodb":
        from zae_limiter._async.engines.dynamodb.open import open_dynamodb

        table = await open_dynamodb(url, settings)
        settings = settings._replace(snapshot_windows=table.snapshot_windows)
        return await repository_over(table, url.place, settings)
    engine = await _open_swept(url, settings, clock)
    return await repository_over(engine, url.place, settings)


async def migrate_store(
    settings: Settings, *, dry_run: bool, on_progress: Callable[[MigrationProgress], None] | None
) -> MigrationReport:
    """Migrate the DynamoDB table that the settings name. Files are migrated when opened."""
    url = _store_url(settings)
    if url.engine != "dynamodb":
        raise ValidationError(
            "url", settings.url, "is migrated when it is opened; migrate() is for DynamoDB tables"
        )
    from zae_limiter._async.engines.dynamodb.open import migrate_dynamodb

    return await migrate_dynamodb(url, settings, dry_run=dry_run, on_progress=on_progress)


async def repository_over(engine: Engine, stack_name: str, settings: Settings) -> Repository:
    """Return a repository over an open engine; if that fails, close the engine."""
    clock, name = settings.clock or HostClock(), _namespace(settings)
    try:
        parallel = Parallel(settings.parallel_mode, useful=not engine.capabilities.atomic_cascade)
        namespace_id = await _namespace_id(engine, name, settings.register, clock)
    except BaseException:
        await engine.close()
        raise
    return Repository(
        Context(
            engine=engine,
            breaker=Breaker(engine, stack_name, settings.request_timeout),
            cache=_config_cache(engine, settings.config_cache_ttl),
            clock=clock,
            parallel=parallel,
            namespace_id=namespace_id,
            namespace_name=name,
            stack_name=stack_name,
            on_unavailable=settings.on_unavailable,
            bucket_ttl_multiplier=settings.bucket_ttl_multiplier,
            snapshot_windows=settings.snapshot_windows,
        )
    )


def _config_cache(engine: Engine, ttl_seconds: float) -> ConfigCache:
    """Return a cache, which is small if the store is in the memory of this process."""
    capabilities = engine.capabilities
    is_local = not (capabilities.durable or capabilities.shared_between_processes)
    return ConfigCache(ttl_seconds, MAX_LOCAL_ENTRIES if is_local else MAX_ENTRIES)


def _namespace(settings: Settings) -> str:
    return check_namespace(named_namespace(settings.namespace))


def _store_url(settings: Settings) -> StoreUrl:
    """Return the URL of the store. Arguments win over the environment, which wins over defaults."""
    of_stack = {
        name: value
        for name in ("stack", "region", "endpoint_url")
        if (value := getattr(settings, name)) is not None
    }
    if settings.url is not None and of_stack:
        raise ValidationError("url", masked_url(settings.url), _contradiction(of_stack))
    url = settings.url or (None if of_stack else os.environ.get("ZAEL_URL"))
    if url is not None:
        return parse_url(url)
    stack = settings.stack or os.environ.get("ZAEL_STACK") or DEFAULT_STACK
    return StoreUrl("dynamodb", check_stack_name(stack), {})


def check_settings(settings: Settings) -> None:
    """Raise ValidationError for a URL or a namespace that cannot be opened."""
    if settings.url is not None:
        _check_options(_store_url(settings))
    if settings.namespace is not None:
        check_namespace(settings.namespace)


def _check_options(url: StoreUrl) -> None:
    """Raise ValidationError for a wrong value of an option of a URL, without opening its store."""
    if url.engine == "sqlite":
        from zae_limiter.embedded.sqlite.file_options import FileOptions

        FileOptions.of(url.options)
    elif url.engine == "dynamodb":
        from zae_limiter.transport.messages import parse_endpoint

        check_region(url.options.get("region") or None)
        if url.options.get("endpoint_url"):
            parse_endpoint(url.options["endpoint_url"])


def stack_to_open(stack: str | None, url: str | None = None) -> str:
    """Return the name of the stack, file or memory store that these arguments open."""
    return _store_url(Settings(stack=stack, url=url)).place


def _contradiction(of_stack: dict[str, str]) -> str:
    names = ", ".join(f"{name}=" for name in of_stack)
    return (
        f"names a store, and so does {names}: drop one of them; the URL of a stack is "
        "dynamodb://STACK?region=…&endpoint_url=…"
    )


def _default_clock(engine: str) -> Clock:
    """Return the clock for an engine, on which all clients of a store agree."""
    if engine == "dynamodb":
        return ServerClock()
    return SharedClock() if engine == "sqlite" else HostClock()


async def _open_swept(url: StoreUrl, settings: Settings, clock: Clock) -> Engine:
    """Open an embedded engine and delete its expired buckets."""
    engine = await _open_embedded(url, settings)
    try:
        await engine.buckets.join_retention(settings.usage_retention_days)
        await engine.buckets.delete_expired_buckets(clock())
    except BaseException:
        await engine.close()
        raise
    return engine


async def _open_embedded(url: StoreUrl, settings: Settings) -> EmbeddedEngine:
    if url.engine == "memory":
        return open_memory(url, settings)
    from zae_limiter._async.engines.sqlite import open_sqlite

    return await open_sqlite(url, settings)


async def _namespace_id(engine: Engine, name: str, register: bool, clock: Clock) -> str:
    """Return the id of a namespace; the default namespace is always created if it is missing.

    The clock is read after the first calls. If the first Date of a server is far from the host's
    time, it counts only when a second answer agrees; until the clock is first read, it may jump.
    """
    if name != DEFAULT_NAMESPACE and await engine.namespaces.find(DEFAULT_NAMESPACE) is None:
        await engine.namespaces.register((DEFAULT_NAMESPACE,), clock())
    namespace = await engine.namespaces.find(name)
    if namespace is not None:
        return namespace.namespace_id
    if not register and name != DEFAULT_NAMESPACE:
        raise NamespaceNotFoundError(name)
    return (await engine.namespaces.register((name,), clock()))[name]

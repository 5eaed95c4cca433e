"""``limits`` and ``throttled-py`` on a Redis of this machine: two calls for two limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import redis.asyncio
from limits.aio import strategies
from limits.aio.storage import RedisStorage
from throttled import RateLimiterType
from throttled import asyncio as aio

from benchmarks import cores
from benchmarks.cases import ASYNC, ASYNC_TASKS, TOKENS, AsyncAcquire, Contestant, Setting
from benchmarks.contestants import peer_limits, peer_throttled
from benchmarks.contestants.own_dynamodb import FAMILY
from benchmarks.redis_server import is_installed, redis_url


@asynccontextmanager
async def empty_redis() -> AsyncIterator[str]:
    """Nothing of an earlier sample is left."""
    async with redis.asyncio.from_url(redis_url()) as client:
        await client.flushall()
    with cores.of_clients():
        yield redis_url()


@asynccontextmanager
async def open_limits(setting: Setting) -> AsyncIterator[AsyncAcquire]:
    async with empty_redis() as url:
        client = redis.asyncio.from_url(url)
        storage = RedisStorage(
            f"async+{url}",
            implementation="redispy",
            connection_pool=client.connection_pool,  # type: ignore[arg-type]
        )
        hit = strategies.FixedWindowRateLimiter(storage).hit

        async def acquire(key: str) -> bool:
            return await hit(peer_limits.RPM, key) and await hit(peer_limits.TPM, key, cost=TOKENS)

        yield acquire
        await client.aclose(close_connection_pool=True)


@asynccontextmanager
async def open_throttled(algorithm: str, setting: Setting) -> AsyncIterator[AsyncAcquire]:
    async with empty_redis() as url:
        store = aio.RedisStore(server=url)
        requests = _limiter(algorithm, peer_throttled.RPM, store, "rpm")
        tokens = _limiter(algorithm, peer_throttled.TPM, store, "tpm")

        async def acquire(key: str) -> bool:
            return not (await requests(key)).limited and not (await tokens(key, TOKENS)).limited

        yield acquire


def _limiter(algorithm: str, quota: Any, store: Any, prefix: str) -> Callable[..., Any]:
    return aio.Throttled(using=algorithm, quota=quota, store=store, key_prefix=prefix).limit


def _contestant(name: str, open_async: Any) -> Contestant:
    return Contestant(name, FAMILY, open_async, open_async, (ASYNC, ASYNC_TASKS), remote=True)


CONTESTANTS = (
    [
        _contestant("limits fixed window, redis", open_limits),
        _contestant(
            "throttled-py token bucket, redis",
            partial(open_throttled, RateLimiterType.TOKEN_BUCKET.value),
        ),
        _contestant(
            "throttled-py fixed window, redis",
            partial(open_throttled, RateLimiterType.FIXED_WINDOW.value),
        ),
    ]
    if is_installed()
    else []
)

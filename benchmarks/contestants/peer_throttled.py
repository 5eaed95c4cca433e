"""``throttled-py``: its token bucket in memory, one call for each of two limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import throttled
from throttled import asyncio as aio

from benchmarks.cases import (
    ASYNC,
    ASYNC_MANY,
    REQUESTS_PER_MINUTE,
    SYNC,
    SYNC_MANY,
    TOKENS,
    TOKENS_PER_MINUTE,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
)

ALGORITHM = throttled.RateLimiterType.TOKEN_BUCKET.value
RPM = throttled.per_min(REQUESTS_PER_MINUTE)
TPM = throttled.per_min(TOKENS_PER_MINUTE)


def room_for(setting: Setting) -> dict[str, int]:
    """Its store forgets keys beyond a maximum, 1024 unless told otherwise."""
    return {"MAX_SIZE": 4 * len(setting.keys)}


@contextmanager
def open_buckets(setting: Setting) -> Iterator[Acquire]:
    store = throttled.MemoryStore(options=room_for(setting))
    requests = throttled.Throttled(using=ALGORITHM, quota=RPM, store=store, key_prefix="rpm").limit
    tokens = throttled.Throttled(using=ALGORITHM, quota=TPM, store=store, key_prefix="tpm").limit

    def acquire(key: str) -> bool:
        return not requests(key).limited and not tokens(key, TOKENS).limited

    yield acquire


@asynccontextmanager
async def open_buckets_async(setting: Setting) -> AsyncIterator[AsyncAcquire]:
    store = aio.MemoryStore(options=room_for(setting))
    requests = aio.Throttled(using=ALGORITHM, quota=RPM, store=store, key_prefix="rpm").limit
    tokens = aio.Throttled(using=ALGORITHM, quota=TPM, store=store, key_prefix="tpm").limit

    async def acquire(key: str) -> bool:
        return not (await requests(key)).limited and not (await tokens(key, TOKENS)).limited

    yield acquire


CONTESTANTS = [
    Contestant(
        "throttled-py token bucket",
        "memory",
        open_buckets,
        open_buckets_async,
        (SYNC, SYNC_MANY, ASYNC, ASYNC_MANY),
    )
]

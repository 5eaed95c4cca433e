"""``limits``: two separate hits, so a rejected second one leaves the first charged.

Its moving window keeps an entry for each token, so there both hits take one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from limits import RateLimitItemPerDay, RateLimitItemPerMinute, strategies
from limits.aio import strategies as aio_strategies
from limits.aio.storage import MemoryStorage as AsyncMemoryStorage
from limits.storage import MemoryStorage

from benchmarks.cases import (
    ASYNC,
    ASYNC_MANY,
    REQUESTS_PER_MINUTE,
    SYNC,
    SYNC_MANY,
    SYNC_THREADS,
    TOKENS,
    TOKENS_PER_MINUTE,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
)

RPM = RateLimitItemPerMinute(REQUESTS_PER_MINUTE, namespace="rpm")
TPM = RateLimitItemPerMinute(TOKENS_PER_MINUTE, namespace="tpm")
TOO_SMALL = RateLimitItemPerDay(1, namespace="tpm")


@contextmanager
def open_window(
    strategy: type[strategies.RateLimiter], cost: int, setting: Setting
) -> Iterator[Acquire]:
    hit = strategy(MemoryStorage()).hit

    def acquire(key: str) -> bool:
        return hit(RPM, key) and hit(TPM, key, cost=cost)

    yield acquire


@asynccontextmanager
async def open_window_async(
    strategy: type[aio_strategies.RateLimiter], cost: int, setting: Setting
) -> AsyncIterator[AsyncAcquire]:
    hit = strategy(AsyncMemoryStorage()).hit

    async def acquire(key: str) -> bool:
        return await hit(RPM, key) and await hit(TPM, key, cost=cost)

    yield acquire


@contextmanager
def open_rejected(setting: Setting) -> Iterator[Acquire]:
    hit = strategies.FixedWindowRateLimiter(MemoryStorage()).hit

    def acquire(key: str) -> bool:
        return hit(RPM, key) and hit(TOO_SMALL, key, cost=TOKENS)

    yield acquire


CONTESTANTS = [
    Contestant(
        "limits fixed window",
        "memory",
        partial(open_window, strategies.FixedWindowRateLimiter, TOKENS),
        partial(open_window_async, aio_strategies.FixedWindowRateLimiter, TOKENS),
        (SYNC, SYNC_MANY, SYNC_THREADS, ASYNC, ASYNC_MANY),
        reference=True,
    ),
    Contestant(
        "limits fixed window",
        "memory",
        open_rejected,
        shapes=(SYNC,),
        scenario="rejected",
        grants=False,
        reference=True,
    ),
    Contestant(
        "limits moving window",
        "memory",
        partial(open_window, strategies.MovingWindowRateLimiter, 1),
        partial(open_window_async, aio_strategies.MovingWindowRateLimiter, 1),
        (SYNC, SYNC_MANY, ASYNC),
    ),
]

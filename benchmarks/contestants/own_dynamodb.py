"""``dynamodb://`` on the server that tests run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from benchmarks.cases import (
    ASYNC,
    ASYNC_CROWD,
    ASYNC_TASKS,
    ASYNC_TASKS_MANY,
    SYNC,
    SYNC_TEN,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
    Shape,
)
from benchmarks.contestants._table import (
    BUSY,
    EMPTY,
    MAX_SHARDS,
    acquire_of,
    add_family,
    open_repository,
    open_sync_repository,
    sync_acquire_of,
)
from benchmarks.dynamodb_server import fresh_table

NAME = "zae-limiter dynamodb"
FAMILY = "server"
ALONE = (SYNC, ASYNC)
TOGETHER = (SYNC_TEN, ASYNC_TASKS_MANY, ASYNC_TASKS, ASYNC_CROWD)
ONE_ITEM = 1  # the same write as the peer's, though the server is fast enough for a split
FAMILY_SHAPES = (ASYNC, Shape(tasks=50, keys=50))


@contextmanager
def open_granted(setting: Setting, max_shards: int = MAX_SHARDS) -> Iterator[Acquire]:
    with fresh_table() as place, open_sync_repository(place, BUSY, max_shards) as repository:
        yield sync_acquire_of(repository)


@asynccontextmanager
async def open_granted_async(
    setting: Setting, max_shards: int = MAX_SHARDS
) -> AsyncIterator[AsyncAcquire]:
    with fresh_table() as place:
        async with open_repository(place, BUSY, max_shards=max_shards) as repository:
            yield acquire_of(repository)


@asynccontextmanager
async def open_cascading(setting: Setting) -> AsyncIterator[AsyncAcquire]:
    with fresh_table() as place:
        async with open_repository(place, BUSY) as repository:
            await add_family(repository, setting.keys)
            yield acquire_of(repository)


@asynccontextmanager
async def open_rejected(
    rejection_cache_ttl: float, setting: Setting
) -> AsyncIterator[AsyncAcquire]:
    with fresh_table() as place:
        async with open_repository(place, EMPTY, rejection_cache_ttl) as repository:
            acquire = acquire_of(repository)
            for key in setting.keys:
                await acquire(key)
            yield acquire


CONTESTANTS = [
    Contestant(
        NAME,
        FAMILY,
        partial(open_granted, max_shards=ONE_ITEM),
        partial(open_granted_async, max_shards=ONE_ITEM),
        ALONE,
        remote=True,
    ),
    Contestant(NAME, FAMILY, open_granted, open_granted_async, TOGETHER, remote=True),
    Contestant(
        NAME,
        FAMILY,
        open_granted,
        open_cascading,
        FAMILY_SHAPES,
        scenario="cascade",
        remote=True,
    ),
    Contestant(
        NAME,
        FAMILY,
        open_granted,
        partial(open_rejected, 1.0),
        (ASYNC,),
        scenario="rejected",
        grants=False,
        remote=True,
    ),
    Contestant(
        f"{NAME}, no rejection cache",
        FAMILY,
        open_granted,
        partial(open_rejected, 0.0),
        (ASYNC,),
        scenario="rejected",
        grants=False,
        remote=True,
    ),
]

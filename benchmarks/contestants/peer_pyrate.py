"""``pyrate-limiter``: two rates of one bucket, at weight 1, since it keeps an entry per unit.

Its SQLite bucket is measured as it ships (rollback journal, flushed at every commit), with the
journal settings of our engine, and with those after some use: it counts the entries of the window
at every call, so it slows down as they gather, and the other two start with none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from pyrate_limiter import (
    AbstractBucket,
    BucketFactory,
    Duration,
    InMemoryBucket,
    Limiter,
    Rate,
    RateItem,
    SQLiteBucket,
)

from benchmarks.cases import (
    ASYNC,
    REQUESTS_PER_MINUTE,
    SYNC,
    SYNC_MANY,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
)

ENTRIES = 10_000

LimiterOf = Callable[[Setting], Limiter]


def rates() -> list[Rate]:
    return [
        Rate(REQUESTS_PER_MINUTE, Duration.MINUTE),
        Rate(10 * REQUESTS_PER_MINUTE, Duration.HOUR),
    ]


class BucketPerKey(BucketFactory):
    """A bucket knows no keys, so each key has its own."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._buckets = {key: self.create(InMemoryBucket, rates()) for key in keys}
        self._now = self._buckets[keys[0]].now

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._now(), weight)

    def get(self, item: RateItem) -> AbstractBucket:
        return self._buckets[item.name]


def memory_limiter(setting: Setting) -> Limiter:
    return Limiter(BucketPerKey(setting.keys))


def file_limiter(setting: Setting) -> Limiter:
    return Limiter(_bucket(setting))


def wal_limiter(setting: Setting) -> Limiter:
    bucket = _bucket(setting)
    bucket.conn.execute("PRAGMA journal_mode = WAL")
    bucket.conn.execute("PRAGMA synchronous = NORMAL")
    return Limiter(bucket)


def used_wal_limiter(setting: Setting) -> Limiter:
    limiter = wal_limiter(setting)
    for bucket in limiter.buckets():
        bucket.put(RateItem(setting.keys[0], bucket.now(), weight=ENTRIES))
    return limiter


def _bucket(setting: Setting) -> SQLiteBucket:
    return SQLiteBucket.init_from_file(rates(), db_path=str(setting.folder / "pyrate.db"))


@contextmanager
def open_limiter(limiter_of: LimiterOf, setting: Setting) -> Iterator[Acquire]:
    with limiter_of(setting) as limiter:
        yield limiter.try_acquire


@asynccontextmanager
async def open_limiter_async(
    limiter_of: LimiterOf, setting: Setting
) -> AsyncIterator[AsyncAcquire]:
    with limiter_of(setting) as limiter:
        yield limiter.try_acquire_async


CONTESTANTS = [
    Contestant(
        "pyrate-limiter memory",
        "memory",
        partial(open_limiter, memory_limiter),
        partial(open_limiter_async, memory_limiter),
        (SYNC, SYNC_MANY, ASYNC),
    ),
    Contestant(
        "pyrate-limiter sqlite",
        "file",
        partial(open_limiter, file_limiter),
        partial(open_limiter_async, file_limiter),
        (SYNC, ASYNC),
        reference=True,
    ),
    Contestant(
        "pyrate-limiter sqlite, WAL",
        "file",
        partial(open_limiter, wal_limiter),
        partial(open_limiter_async, wal_limiter),
        (SYNC, ASYNC),
    ),
    Contestant(
        f"pyrate-limiter sqlite, WAL, {ENTRIES:,} entries",
        "file",
        partial(open_limiter, used_wal_limiter),
        shapes=(SYNC,),
    ),
]

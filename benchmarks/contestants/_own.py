"""Our limiter on any store: an engine's file says which URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from benchmarks.cases import (
    ALL_SHAPES,
    REQUESTS_PER_MINUTE,
    SYNC,
    TOKENS,
    TOKENS_PER_MINUTE,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
    Shape,
)
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

UrlOf = Callable[[Setting], str]

RESOURCE = "gpt-4"
PARENT = "parent"
AMOUNTS = {"rpm": 1, "tpm": TOKENS}
LIMITS = [
    Limit.per_minute("rpm", REQUESTS_PER_MINUTE),
    Limit.per_minute("tpm", TOKENS_PER_MINUTE),
]
TOO_SMALL = [Limit.per_day("rpm", 1), Limit.per_day("tpm", 1)]


def own_contestants(
    name: str,
    family: str,
    url_of: UrlOf,
    *,
    shapes: tuple[Shape, ...] = ALL_SHAPES,
    writers: int = 0,
) -> list[Contestant]:
    """Plain, cascading and rejected acquires on one engine."""
    return [
        Contestant(
            name,
            family,
            partial(open_granted, url_of),
            partial(open_granted_async, url_of),
            shapes,
            writers=writers,
        ),
        Contestant(
            name, family, partial(open_cascading, url_of), shapes=(SYNC,), scenario="cascade"
        ),
        Contestant(
            name,
            family,
            partial(open_rejected, url_of),
            shapes=(SYNC,),
            scenario="rejected",
            grants=False,
        ),
    ]


@contextmanager
def open_granted(url_of: UrlOf, setting: Setting) -> Iterator[Acquire]:
    with SyncRepository.open(url=url_of(setting)) as repository:
        repository.set_system_defaults(LIMITS)
        yield _granted(SyncRateLimiter(repository))


@contextmanager
def open_cascading(url_of: UrlOf, setting: Setting) -> Iterator[Acquire]:
    with SyncRepository.open(url=url_of(setting)) as repository:
        repository.set_system_defaults(LIMITS)
        repository.create_entity(PARENT)
        for key in setting.keys:
            repository.create_entity(key, parent_id=PARENT, cascade=True)
        yield _granted(SyncRateLimiter(repository))


@contextmanager
def open_rejected(url_of: UrlOf, setting: Setting) -> Iterator[Acquire]:
    with SyncRepository.open(url=url_of(setting)) as repository:
        repository.set_system_defaults(TOO_SMALL)
        limiter = SyncRateLimiter(repository)

        def acquire(key: str) -> bool:
            try:
                with limiter.acquire(key, RESOURCE, AMOUNTS):
                    return True
            except RateLimitExceeded:
                return False

        yield acquire


@asynccontextmanager
async def open_granted_async(url_of: UrlOf, setting: Setting) -> AsyncIterator[AsyncAcquire]:
    async with await Repository.open(url=url_of(setting)) as repository:
        await repository.set_system_defaults(LIMITS)
        limiter = RateLimiter(repository)

        async def acquire(key: str) -> bool:
            async with limiter.acquire(key, RESOURCE, AMOUNTS):
                return True

        yield acquire


def _granted(limiter: SyncRateLimiter) -> Acquire:
    def acquire(key: str) -> bool:
        with limiter.acquire(key, RESOURCE, AMOUNTS):
            return True

    return acquire

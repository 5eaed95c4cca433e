"""Our limiter on a table of the real server, as all who measure DynamoDB open it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from benchmarks.cases import TOKENS, Acquire, AsyncAcquire
from benchmarks.dynamodb_server import Place
from tests.support.dynamodb.tables import store_url
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

RESOURCE = "gpt-4"
PARENT = "parent"
AMOUNTS = {"rpm": 1, "tpm": TOKENS}
MAX_SHARDS = 32  # as by default
PATIENT_S = 30.0  # a slow call on a busy machine shows in the figures and breaks nothing

# Neither full nor empty while it is measured, as a bucket in use is.
BUSY = [Limit.per_day("rpm", 864, burst=10**6), Limit.per_day("tpm", 86_400, burst=10**8)]
# The second acquire does not fit, nor any other for hours.
EMPTY = [Limit.per_day("rpm", 864, burst=10**6), Limit.per_day("tpm", 864, burst=TOKENS)]


@asynccontextmanager
async def open_repository(
    place: Place,
    limits: list[Limit] | None = None,
    rejection_cache_ttl: float = 1.0,
    max_shards: int = MAX_SHARDS,
) -> AsyncIterator[Repository]:
    """On an existing table; None leaves the limits that somebody has stored there."""
    opened = await Repository.open(
        url=store_url(*place),
        provision="table",
        rejection_cache_ttl=rejection_cache_ttl,
        max_shards=max_shards,
        request_timeout=PATIENT_S,
    )
    async with opened as repository:
        if limits is not None:
            await repository.set_system_defaults(limits)
        yield repository


@contextmanager
def open_sync_repository(
    place: Place, limits: list[Limit], max_shards: int = MAX_SHARDS
) -> Iterator[SyncRepository]:
    """The same for threads."""
    with SyncRepository.open(
        url=store_url(*place),
        provision="table",
        max_shards=max_shards,
        request_timeout=PATIENT_S,
    ) as repository:
        repository.set_system_defaults(limits)
        yield repository


def acquire_of(repository: Repository, amounts: dict[str, int] = AMOUNTS) -> AsyncAcquire:
    """Take, and give nothing back; False if that was rejected."""
    limiter = RateLimiter(repository)

    async def acquire(key: str) -> bool:
        try:
            async with limiter.acquire(key, RESOURCE, amounts):
                return True
        except RateLimitExceeded:
            return False

    return acquire


def sync_acquire_of(repository: SyncRepository) -> Acquire:
    limiter = SyncRateLimiter(repository)

    def acquire(key: str) -> bool:
        with limiter.acquire(key, RESOURCE, AMOUNTS):
            return True

    return acquire


async def add_family(repository: Repository, keys: tuple[str, ...]) -> None:
    """Every key becomes a child of one parent."""
    await repository.create_entity(PARENT)
    for key in keys:
        await repository.create_entity(key, parent_id=PARENT, cascade=True)

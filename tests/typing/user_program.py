"""A user's program, checked by mypy in strict mode; it is never run."""

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any, assert_type

from zae_limiter import (
    Availability,
    BucketState,
    ConfigSource,
    Entity,
    Lease,
    Limit,
    OnUnavailable,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    UsageSnapshot,
    llm,
)
from zae_limiter.models import WindowType
from zae_limiter.settings import check_parallel_mode, check_provision
from zae_limiter.testing import outage


async def asynchronous() -> None:
    repo = await Repository.open("tenant", url="memory://")
    assert_type(repo, Repository)
    limiter = RateLimiter(repository=repo)
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        assert_type(lease, Lease)
        assert_type(lease.consumed, dict[str, int | Decimal])
        assert_type(lease.remaining, dict[str, int | Decimal])
        await lease.settle({"tpm": lease.consumed["tpm"] // 2})
        await lease.adjust(tpm=3)
        await lease.adjust({"gpt-4.tokens": 3})
    also = limiter.acquire(
        "key", "gpt-4", {"rpm": 1}, also={"all": {"usd": "0.01"}, ("org", "all"): {"tpm": 1}}
    )
    async with also as lease:
        assert_type(lease.resource(("org", "all")), Lease)
    assert_type(await limiter.available("key", "gpt-4"), dict[str, int | Decimal])
    assert_type(await limiter.check_availability("key", "gpt-4"), Availability)
    assert_type(await limiter.create_entity("key", parent_id="p", cascade=True), Entity)
    assert_type(await limiter.ensure_entity("key", parent_id="p", cascade=True), Entity)
    assert_type(await limiter.set_limits("key", [], if_missing=True), bool)
    assert_type(await limiter.set_parent("key", None), Entity)
    assert_type(await limiter.get_limits("key"), list[Limit])
    assert_type(await repo.get_buckets("key"), list[BucketState])
    assert_type(
        await repo.resolve_limits("key", "gpt-4"),
        tuple[list[Limit] | None, OnUnavailable | None, ConfigSource | None],
    )
    assert_type(await repo.get_usage_snapshots("key"), tuple[list[UsageSnapshot], str | None])
    async with Repository.open(url="memory://") as opened:
        assert_type(opened, Repository)
    own = RateLimiter(url="memory://", namespace="tenant", request_timeout=5)
    assert_type(await own.open(), Repository)


class Event:
    """An event of an SDK."""

    text: str


class Events:
    """The stream of an SDK, in one form for both trees."""

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield Event()

    def __iter__(self) -> Iterator[Event]:
        yield Event()


async def with_streams(call: llm.LlmCall, sync_call: llm.SyncLlmCall) -> None:
    assert_type(call.stream(Events()), llm.LlmStream[Event])
    async for event in call.stream(Events()):
        assert_type(event.text, str)
    for chunk in sync_call.stream(Events()):
        assert_type(chunk, Event)
    bedrock: dict[str, Any] = {}
    assert_type(call.stream(bedrock), llm.LlmStream[Any])
    assert_type(sync_call.stream(bedrock), llm.SyncLlmStream[Any])
    unknown: Any = None
    assert_type(sync_call.stream(unknown), llm.SyncLlmStream[Any])


async def with_models(limiter: RateLimiter, sync_limiter: SyncRateLimiter) -> None:
    async with llm.reserve(limiter, "key", "gpt-4", estimate=llm.Estimate(1, 2)) as call:
        assert_type(call, llm.LlmCall)
        assert_type(call.record({}), llm.Usage | None)
        async for _ in call.stream(object()):
            pass
    with llm.reserve(sync_limiter, "key", "gpt-4", {}, meter={"tpm": llm.ALL_TOKENS}) as sync_call:
        assert_type(sync_call, llm.SyncLlmCall)
        assert_type(sync_call.stream(object()), llm.SyncLlmStream)


def synchronous() -> None:
    repo = SyncRepository.open("tenant", url="memory://", parallel_mode="serial")
    assert_type(repo, SyncRepository)
    limiter = SyncRateLimiter(repository=repo)
    try:
        with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            assert_type(lease, SyncLease)
            lease.adjust(tpm=3)
    except RateLimitExceeded as error:
        assert_type(error.retry_after_header, str)
    assert_type(limiter.create_entity("key"), Entity)
    assert_type(limiter.set_parent("key", "project", cascade=False), Entity)
    assert_type(Limit.parse("rpm:60"), Limit)
    assert_type(Limit.quota("tokens", 5, per="quarter"), Limit)
    with outage(repo), outage(limiter):
        pass
    assert_type(repo.namespace("other"), SyncRepository)


def with_text_from_elsewhere(text: dict[str, str]) -> None:
    repo = SyncRepository.open(
        provision=check_provision(text["provision"]),
        parallel_mode=check_parallel_mode(text["parallel_mode"]),
    )
    policy = OnUnavailable(text["on_unavailable"])
    SyncRateLimiter(repo).acquire("key", "gpt-4", {"rpm": 1}, on_unavailable=policy)
    repo.get_usage_snapshots("key", window_type=WindowType(text["window_type"]))

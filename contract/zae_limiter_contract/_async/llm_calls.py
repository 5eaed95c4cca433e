"""LLM calls: an estimate is charged, and the real cost replaces it however the call ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from zae_limiter import llm
from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.hooks import Hooks, SettleEvent
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.together import agather

ONE = Limit.concurrent("parallel", 1, lease_ttl=60)
LIMITS = (ONE, Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 100_000))
INPUT, ESTIMATE = 100, llm.Estimate(100, 5_000)
WORDS = ("one ", "two ", "three ")


def words(text: str) -> int:
    return len(text.split())


async def events() -> AsyncIterator[dict[str, Any]]:
    """A stream of three words that reports no usage."""
    for word in WORDS:
        yield {"choices": [{"delta": {"content": word}, "finish_reason": None}]}


def unchanged(stream: Any) -> Any:
    return stream


async def passed_on(stream: Any) -> AsyncIterator[Any]:
    """A generator of a program that stands between a stream and its reader."""
    async for event in stream:
        yield event


def refusal(retry_after: str, retries: int = 0) -> Exception:
    error: Any = Failure("refused")
    request = SimpleNamespace(headers={"x-stainless-retry-count": str(retries)})
    headers = {"retry-after": retry_after}
    error.response = SimpleNamespace(status_code=429, headers=headers, request=request)
    return error  # type: ignore[no-any-return]


class Settlements(Hooks):
    """A hook that remembers the events of settlements."""

    def __init__(self) -> None:
        self.events: list[SettleEvent] = []

    def on_settle(self, event: SettleEvent) -> None:
        self.events.append(event)


class LlmCallContract(Contract):
    """The delivered text is charged, and a slot is held while a call is in flight."""

    @pytest.fixture
    async def limited(self, world: World) -> World:
        """A world with one slot."""
        await world.configure(*LIMITS)
        return world

    def reserve(self, world: World, **options: Any) -> Any:
        limiter = options.pop("limiter", world.limiter)
        return llm.reserve(limiter, USER, API, estimate=ESTIMATE, count=words, **options)

    async def spent(self, world: World) -> tuple[int, int]:
        return await world.spent("rpm"), await world.spent("tpm")

    async def is_free(self, world: World) -> bool:
        """Tell whether the only slot is free."""
        return await world.tokens("parallel") == 1

    async def test_an_answer_without_usage_returns_its_slot(self, limited: World) -> None:
        calls = []
        for _ in range(5):
            async with self.reserve(limited) as call:
                assert not await self.is_free(limited)
                assert call.record({"data": [{"b64_json": "an image"}]}) is None
            calls.append(call)  # as the variable of a handler that goes on
            assert await self.is_free(limited)
        assert await self.spent(limited) == (5, 5 * 5_100)

    async def test_an_answer_without_usage_costs_at_most_its_max_tokens(
        self, limited: World
    ) -> None:
        answer = {"choices": [{"message": {"content": "one two three"}}]}
        for request, output in ({"max_tokens": 2}, 2), ({"max_tokens": 9}, 3), ({}, 3):
            before = await limited.spent("tpm")
            async with self.reserve(limited, request=request) as call:
                assert call.record(answer) is None
            assert await limited.spent("tpm") - before == ESTIMATE.input_tokens + output

    async def test_a_stream_holds_its_slot_until_it_is_read(self, limited: World) -> None:
        async with self.reserve(limited) as call:
            stream = call.stream(events())
        assert not await self.is_free(limited)
        async for _ in stream:
            assert not await self.is_free(limited)
        assert await self.is_free(limited)
        assert await self.spent(limited) == (1, INPUT + 3)

    async def test_a_stream_that_is_opened_late_is_charged(self, limited: World) -> None:
        async with self.reserve(limited) as call:
            pass
        assert await self.is_free(limited)
        async for _ in call.stream(events()):
            pass
        assert await self.spent(limited) == (1, INPUT + 3)
        assert await self.is_free(limited)

    async def test_a_reader_that_stops_has_paid_at_the_end_of_the_block(
        self, limited: World
    ) -> None:
        async with self.reserve(limited) as call:
            async for _ in call.stream(events()):
                break
        assert call.is_settled
        assert await self.spent(limited) == (1, INPUT + 1)
        assert await self.is_free(limited)

    @pytest.mark.parametrize("wrap", [unchanged, passed_on], ids=["stream", "generator"])
    async def test_a_dropped_stream_is_settled_before_its_store_is_closed(
        self, limited: World, wrap: Any
    ) -> None:
        other = await limited.open()
        async with self.reserve(limited, limiter=RateLimiter(other)) as call:
            streams = [wrap(call.stream(events()))]
        async for _ in streams.pop():
            break
        await other.close()
        assert call.is_settled
        assert other.lost_settlements == 0
        assert await self.spent(limited) == (1, INPUT + 1)
        assert await self.is_free(limited)

    async def test_a_failed_block_settles_its_open_stream(self, limited: World) -> None:
        streams = []
        with failing():
            async with self.reserve(limited) as call:
                streams.append(call.stream(events()))
                await anext(streams[0])
                raise Failure
        assert await self.spent(limited) == (1, INPUT + 1)
        assert await self.is_free(limited)
        await streams[0].aclose()
        assert call.is_settled
        assert await self.spent(limited) == (1, INPUT + 1)
        assert await self.is_free(limited)

    async def test_text_that_is_read_after_a_failed_block_is_charged(self, limited: World) -> None:
        streams = []
        with failing():
            async with self.reserve(limited) as call:
                streams.append(call.stream(events()))
                await agather([partial(anext, streams[0])])
                raise Failure
        assert await self.spent(limited) == (1, INPUT + 1)
        assert not await self.is_free(limited)
        assert not call.is_settled
        async for _ in streams[0]:
            pass
        assert call.is_settled
        assert await self.spent(limited) == (1, INPUT + 3)
        assert await self.is_free(limited)

    @pytest.mark.parametrize(
        ("retry_after", "seconds"),
        [
            ("Mon, 01 Jan 0001 00:00:00 -2359", 0),
            ("Fri, 31 Dec 9999 23:59:59 -2359", 86_400),
            ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
            ("9" * 60_000 + "s", None),
        ],
        ids=["early", "late", "never", "long"],
    )
    async def test_any_wait_of_a_provider_is_read(
        self, limited: World, retry_after: str, seconds: float | None
    ) -> None:
        with failing():
            async with self.reserve(limited, pause=False) as call:
                raise refusal(retry_after)
        assert call.provider_wait == seconds
        assert call.is_settled
        assert await self.spent(limited) == (1, INPUT)
        assert await self.is_free(limited)

    async def test_an_impossible_usage_ends_the_call(self, limited: World) -> None:
        async with self.reserve(limited) as call:
            call.record({"usage": {"prompt_tokens": 10**400, "completion_tokens": 1}})
        assert call.is_settled
        assert await self.spent(limited) == (1, 10**9 + 1)
        assert await self.is_free(limited)

    @pytest.mark.parametrize(
        ("charge_refused", "tokens"), [(True, INPUT), (False, 0)], ids=["charged", "not-charged"]
    )
    async def test_the_usage_of_a_failed_call_is_the_charged_one(
        self, limited: World, charge_refused: bool, tokens: int
    ) -> None:
        with failing():
            async with self.reserve(limited, pause=False, charge_refused=charge_refused) as call:
                raise refusal("1", retries=2)
        assert call.usage == llm.Usage(tokens, requests=3)
        assert call.lease.consumed == {"rpm": 3, "tpm": tokens}
        assert await self.spent(limited) == (3, tokens)

    async def test_hooks_are_told_that_a_block_has_failed(self, limited: World) -> None:
        hooks = Settlements()
        limiter = RateLimiter(limited.repo, hooks=hooks)
        async with self.reserve(limited, limiter=limiter) as call:
            call.record_usage(llm.Usage(10, 7))
        with failing():
            async with self.reserve(limited, limiter=limiter):
                raise Failure
        streams = []
        with failing():
            async with self.reserve(limited, limiter=limiter) as call:
                streams.append(call.stream(events()))
                await agather([partial(anext, streams[0])])
                raise Failure
        await streams[0].aclose()
        assert [event.failed for event in hooks.events] == [False, True, True]
        assert [event.cost["tpm"] for event in hooks.events] == [17, INPUT, INPUT + 1]

    async def test_an_error_that_is_recorded_settles_the_call_as_one_that_leaves_the_block(
        self, limited: World
    ) -> None:
        async with self.reserve(limited) as call:
            assert call.record(refusal("30")) is None
            assert call.provider_wait == 30
        assert call.usage == llm.Usage(INPUT)
        assert await self.spent(limited) == (1, INPUT)
        with failing(RateLimitExceeded):
            await limited.take(rpm=1)

    async def test_attempts_of_one_block_are_charged_one_by_one(self, limited: World) -> None:
        async with self.reserve(limited, charge_refused=False) as call:
            call.record(refusal("30"))
            call.record(Failure("no answer"))
            call.record({"usage": {"prompt_tokens": 10, "completion_tokens": 7}})
        assert call.provider_wait is None, "the provider has answered after all"
        assert await self.spent(limited) == (3, INPUT + 17)
        assert await limited.granted(rpm=1)

    async def test_an_error_that_is_recorded_and_raised_counts_once(self, limited: World) -> None:
        error = refusal("30")
        with failing():
            async with self.reserve(limited, pause=False) as call:
                call.record(error)
                raise error
        assert call.provider_wait == 30
        assert await self.spent(limited) == (1, INPUT)

    async def test_a_stream_that_was_recorded_by_mistake_counts_once(self, limited: World) -> None:
        async with self.reserve(limited) as call:
            source = events()
            with failing(ValidationError):
                call.record(source)
            async for _ in call.stream(source):
                pass
        assert call.usage == llm.Usage(INPUT, 3)
        assert await self.spent(limited) == (1, INPUT + 3)

    async def test_a_stream_that_nobody_has_read_costs_its_estimate(self, limited: World) -> None:
        with failing(ValidationError):
            async with self.reserve(limited) as call:
                call.record_usage(llm.Usage(10, 7))
                call.record(events())
        assert await self.spent(limited) == (2, 17 + 5_100)

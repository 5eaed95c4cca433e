"""Shadow mode, which rejects nothing, and hooks, which get all events."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.hooks import NAMES, Hooks, OutageEvent
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract, Outage
from zae_limiter_contract._async.world import (
    API,
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)
CHILD, PARENT = "child", "parent"


class Recorder:
    """Remembers every event, with the name of its hook."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        for name in NAMES:
            setattr(self, name, lambda event, name=name: self.events.append((name, event)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def last(self) -> Any:
        return self.events[-1][1]


class ShadowContract(Contract):
    """Nothing is rejected, but the buckets are the same as after a rejection."""

    async def test_a_call_that_does_not_fit_is_let_through_uncharged(self, world: World) -> None:
        await world.configure(RPM, TPM)
        limiter = RateLimiter(world.repo, mode="shadow")
        async with limiter.acquire(USER, API, {"rpm": 8}) as lease:
            assert (lease.shadowed, lease.consumed) == (False, {"rpm": 8})
        async with limiter.acquire(USER, API, {"rpm": 3}) as lease:
            assert (lease.shadowed, lease.consumed) == (True, {})
            await lease.adjust(tpm=5)
            await lease.release(rpm=1)
            await lease.settle(tpm=5, now=True)
            rpm, tpm = lease.statuses
            assert (rpm.exceeded, rpm.requested, rpm.retry_after_seconds) == (True, 3, 6)
            assert (tpm.exceeded, lease.remaining) == (False, {"rpm": 2, "tpm": 100})
        assert await world.limiter.available(USER, API) == {"rpm": 2, "tpm": 100}

    async def test_a_shadow_leaves_the_same_levels_as_enforcing(self, world: World) -> None:
        await world.configure(RPM, TPM)
        shadow = RateLimiter(world.repo, mode="shadow")
        for amount in (3, 9, 4, 5, 3, 1):
            async with shadow.acquire("shadow", API, {"rpm": amount}) as lease:
                await lease.adjust(tpm=20)
            try:
                async with world.acquire("enforced", rpm=amount) as lease:
                    await lease.adjust(tpm=20)
            except RateLimitExceeded:
                pass
            world.clock.advance(seconds=1)
        for limit in (RPM, TPM):
            spent = await world.spent(limit.name, "shadow")
            assert spent == await world.spent(limit.name, "enforced") > 0
            levels = [await world.level(limit.name, each) for each in ("shadow", "enforced")]
            assert max(levels) - min(levels) <= world.spec.level_off_milli(limit.capacity)

    async def test_a_call_may_choose_its_mode(self, world: World) -> None:
        await world.configure(RPM)
        async with world.limiter.acquire(USER, API, {"rpm": 11}, mode="shadow") as lease:
            assert lease.shadowed
        shadow = RateLimiter(world.repo, mode="shadow")
        with pytest.raises(RateLimitExceeded):
            async with shadow.acquire(USER, API, {"rpm": 11}, mode="enforce"):
                pass

    async def test_a_consume_that_does_not_fit_is_let_through_uncharged(self, world: World) -> None:
        await world.configure(RPM)
        async with world.limiter.acquire(USER, API, {"rpm": 8}, mode="shadow") as lease:
            await lease.consume(rpm=3)
            assert (lease.shadowed, lease.consumed) == (True, {"rpm": 8})
            await lease.consume(rpm=2)
            assert lease.consumed == {"rpm": 10}
        assert await world.tokens() == 0

    async def test_a_failed_block_is_refunded_in_shadow_mode_too(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.limiter.acquire(USER, API, {"rpm": 8}, mode="shadow"):
                raise Failure
        assert await world.tokens() == 10

    async def test_usage_counts_shadowed_calls_apart_from_rejected_ones(self, world: World) -> None:
        require_usage_history(world.spec)
        await world.configure(RPM)
        for amount in (10, 1, 1):
            async with world.limiter.acquire(USER, API, {"rpm": amount}, mode="shadow"):
                pass
        world.clock.advance(minutes=1)
        await world.take(rpm=2)
        summary = await world.repo.get_usage_summary(USER)
        assert (summary.shadowed, summary.rejected, summary.waited) == (2, 0, 0)

    async def test_an_outage_raises_nothing_in_shadow_mode(
        self, world: World, outage: Outage
    ) -> None:
        await world.configure(RPM)
        await world.take(rpm=1)
        hasty, recorder = await world.open(request_timeout=world.spec.moment_s), Recorder()
        limiter = RateLimiter(hasty, mode="shadow", hooks=recorder)
        await limiter.available(USER, API)
        async with limiter.acquire(USER, API, {"rpm": 2}) as charged:
            with outage():
                async with limiter.acquire(USER, API, {"rpm": 2}) as lease:
                    assert (lease.shadowed, lease.consumed, lease.statuses) == (False, {}, ())
                    assert lease.headers() == {}
                await charged.consume(rpm=1)
                await charged.release(rpm=1)
                await charged.settle(rpm=4, now=True)
        outages = [event for name, event in recorder.events if name == "on_outage"]
        assert len(outages) == 4
        assert all(isinstance(each, OutageEvent) and each.admitted for each in outages)
        assert await world.tokens() == 5

    async def test_another_word_for_a_mode_is_refused(self, world: World) -> None:
        for mode in ("", "Shadow", True, ["shadow"]):
            with pytest.raises(ValidationError, match="mode"):
                RateLimiter(world.repo, mode=mode)  # type: ignore[arg-type]
            with pytest.raises(ValidationError, match="mode"):
                world.limiter.acquire(USER, API, {}, mode=mode)  # type: ignore[arg-type]


class HookContract(Contract):
    """Each event comes once, with its data."""

    async def test_a_granted_acquire_and_its_end_are_reported(self, world: World) -> None:
        await world.configure(RPM, TPM)
        limiter, recorder = _hooked(world)
        async with limiter.acquire(USER, API, {"rpm": 2}) as lease:
            assert recorder.names == ["on_acquire"]
            event = recorder.last()
            assert (event.entity_id, event.resource, event.consume) == (USER, API, {"rpm": 2})
            assert event.statuses == lease.statuses
            assert (event.cascade, event.waited_s) == (False, 0)
            assert 0 < event.duration_s < 10
            await lease.settle(tpm=30)
        assert recorder.names == ["on_acquire", "on_settle"]
        event = recorder.last()
        assert (event.cost, event.written) == ({"rpm": 2, "tpm": 30}, {"tpm": 30})
        assert (event.failed, event.lost) == (False, False)

    async def test_a_failed_block_is_reported_with_what_it_cost(self, world: World) -> None:
        await world.configure(RPM, TPM)
        limiter, recorder = _hooked(world)
        with failing():
            async with limiter.acquire(USER, API, {"rpm": 2, "tpm": 10}) as lease:
                await lease.settle(tpm=4)
                raise Failure
        event = recorder.last()
        assert event.failed
        assert event.cost == {"rpm": 0, "tpm": 4}
        assert event.written == {"rpm": -2, "tpm": -6}

    async def test_rejections_are_reported(self, world: World) -> None:
        await world.configure(RPM)
        limiter, recorder = _hooked(world)
        async with limiter.acquire(USER, API, {"rpm": 8}) as lease:
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=3)
            with pytest.raises(RateLimitExceeded):
                async with limiter.acquire(USER, API, {"rpm": 4}):
                    pass
        assert recorder.names == ["on_acquire", "on_reject", "on_reject", "on_settle"]
        consume, acquire = (event for name, event in recorder.events if name == "on_reject")
        assert (consume.is_acquire, consume.consume) == (False, {"rpm": 3})
        assert (acquire.is_acquire, acquire.consume) == (True, {"rpm": 4})
        assert acquire.retry_after_seconds == 12
        assert [each.limit_name for each in acquire.violations] == ["rpm"]

    async def test_what_a_shadow_lets_through_is_reported_as_such(self, world: World) -> None:
        await world.configure(RPM)
        limiter, recorder = _hooked(world, mode="shadow")
        async with limiter.acquire(USER, API, {"rpm": 11}):
            pass
        assert recorder.names == ["on_shadow"]
        assert recorder.last().consume == {"rpm": 11}

    async def test_a_cascade_is_reported_with_both_buckets(self, world: World) -> None:
        await world.configure(RPM)
        await world.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        limiter, recorder = _hooked(world)
        async with limiter.acquire(CHILD, API, {"rpm": 1}):
            pass
        event = recorder.events[0][1]
        assert event.cascade
        assert [each.entity_id for each in event.statuses] == [CHILD, PARENT]

    async def test_an_outage_is_reported_with_what_becomes_of_the_call(
        self, world: World, outage: Outage
    ) -> None:
        recorder = Recorder()
        await world.configure(RPM)
        await world.take(rpm=1)
        limiter = RateLimiter(await world.open(request_timeout=world.spec.moment_s), hooks=recorder)
        await limiter.available(USER, API)
        await _try_in(outage(), limiter)
        assert recorder.names == ["on_outage", "on_outage"]
        admitted, blocked = (event for _, event in recorder.events)
        assert (admitted.admitted, blocked.admitted) == (True, False)
        assert isinstance(blocked.error, RateLimiterUnavailable)

    async def test_an_error_in_a_hook_is_logged_once_and_breaks_nothing(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        await world.configure(RPM)

        class Broken(Hooks):
            def on_acquire(self, event: object) -> None:
                raise ArithmeticError

        recorder = Recorder()
        limiter = RateLimiter(world.repo, hooks=[Broken(), recorder])
        for _ in range(3):
            async with limiter.acquire(USER, API, {"rpm": 1}):
                pass
        assert await world.tokens() == 7
        assert recorder.names == ["on_acquire", "on_settle"] * 3
        records = [each for each in caplog.records if each.name == "zae_limiter.hooks"]
        assert [(each.levelno, "on_acquire" in each.getMessage()) for each in records] == [
            (logging.ERROR, True)
        ]

    async def test_hooks_that_would_never_be_called_are_refused(self, world: World) -> None:
        for hooks in (object(), "on_acquire", [Hooks(), 3]):
            with pytest.raises(ValidationError) as caught:
                RateLimiter(world.repo, hooks=hooks)
            assert caught.value.field == "hooks"


def _hooked(world: World, **settings: Any) -> tuple[RateLimiter, Recorder]:
    recorder = Recorder()
    return RateLimiter(world.repo, hooks=recorder, **settings), recorder


async def _try_in(fault: AbstractContextManager[None], limiter: RateLimiter) -> None:
    with fault:
        async with limiter.acquire(USER, API, {"rpm": 1}, on_unavailable="allow"):
            pass
        with pytest.raises(RateLimiterUnavailable):
            async with limiter.acquire(USER, API, {"rpm": 1}):
                pass

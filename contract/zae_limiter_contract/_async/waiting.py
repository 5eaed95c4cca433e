"""``acquire(timeout=…)``: callers wait for their tokens, in the order of arrival."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import SimpleNamespace

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.hooks import AcquireEvent
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.calls import apause
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.stopwatch import Stopwatch
from zae_limiter_contract.together import agather

RPS = Limit.per_second("rps", 10)
TIMEOUT_S = 50.0
Call = Callable[[], Awaitable[None]]
ATTEMPTS = 5  # of a measurement of real time
PATIENCE_S = 20.0  # a machine without a free core needs seconds to start some threads


class Line:
    """Callers that wait for a fake clock, and the moments at which they went on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.started_ms = world.clock()
        self.entered: dict[object, int] = {}  # by caller, in milliseconds since the start
        self.rejected: dict[object, RateLimitExceeded] = {}

    async def wait(
        self,
        caller: object,
        rps: int = 1,
        *,
        entity_id: str = USER,
        timeout: float = TIMEOUT_S,
        limiter: RateLimiter | None = None,
        **amounts: int,
    ) -> None:
        """One caller."""
        limiter, amounts = limiter or self.world.limiter, {"rps": rps, **amounts}
        try:
            async with limiter.acquire(entity_id, API, amounts, timeout=timeout):
                self.entered[caller] = self.world.clock() - self.started_ms
        except RateLimitExceeded as error:
            self.rejected[caller] = error

    async def run(self, calls: Sequence[Call], expected: dict[object, int]) -> None:
        """Let callers arrive one after the other; each must go on exactly at its moment."""
        clock, entered = self.world.clock, self.entered

        def arrived() -> int:
            return clock.waiting + len(entered) + len(self.rejected)

        async def arrive(number: int, call: Call) -> None:
            await until(lambda: arrived() >= number)
            await call()

        async def move() -> None:
            await until(lambda: arrived() >= len(calls))
            for moment_ms in sorted(set(expected.values())):
                before = {each for each, due_ms in expected.items() if due_ms < moment_ms}
                if moment_ms:
                    clock.set(self.started_ms + moment_ms - 1)
                    for _ in range(10):  # a caller that went on too early would do it now
                        await apause()
                        # sync: time.sleep(0.0005)
                    # A caller that looks now would take this moment for the present one.
                    await until(lambda: arrived() >= len(calls))
                    assert set(entered) == before
                clock.set(self.started_ms + moment_ms)
                due = {each for each, due_ms in expected.items() if due_ms <= moment_ms}
                await until(lambda due=due: due <= entered.keys())  # type: ignore[misc]

        arrivals: list[Call] = [partial(arrive, *each) for each in enumerate(calls)]
        await agather([*arrivals, move])
        assert entered == expected


async def until(condition: Callable[[], bool]) -> None:
    """Wait for other tasks or threads."""
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s
        await apause()
        # sync: time.sleep(0.001)


class WaitingContract(Contract):
    """Callers reserve ahead, so that the order of the writes is the order of service."""

    @pytest.fixture
    async def line(self, world: World) -> Line:
        """An empty bucket of 10 tokens a second."""
        await world.configure(RPS)
        await world.take(rps=10)
        return Line(world)

    async def test_callers_go_on_in_order_each_when_its_token_has_accrued(self, line: Line) -> None:
        calls = [partial(line.wait, number) for number in range(4)]
        await line.run(calls, {0: 100, 1: 200, 2: 300, 3: 400})

    async def test_what_a_caller_waited_and_what_it_leaves_are_reported(self, line: Line) -> None:
        events: list[AcquireEvent] = []
        hooks = SimpleNamespace(on_acquire=events.append)
        limiter = RateLimiter(line.world.repo, hooks=hooks)
        calls = [partial(line.wait, number, limiter=limiter) for number in range(2)]
        await line.run(calls, {0: 100, 1: 200})
        assert all(0 < event.waited_s <= event.duration_s for event in events)
        # What is left for one does not count the caller behind it.
        assert [event.statuses[0].available for event in events] == [0, 0]

    async def test_a_shadow_does_not_wait(self, line: Line) -> None:
        limiter = RateLimiter(line.world.repo, mode="shadow")
        async with limiter.acquire(USER, API, {"rps": 1}, timeout=TIMEOUT_S) as lease:
            assert (lease.shadowed, lease.consumed) == (True, {})

    async def test_what_is_there_is_given_at_once(self, world: World) -> None:
        await world.configure(RPS)
        line = Line(world)
        await line.wait("first", 4, timeout=1)
        await line.wait("second", 6, timeout=1)
        assert line.entered == {"first": 0, "second": 0}
        assert await world.level("rps") == 0

    async def test_a_large_request_is_served_in_its_turn(self, line: Line) -> None:
        calls = [
            partial(line.wait, "a"),
            partial(line.wait, "large", 10),
            partial(line.wait, "b"),
            partial(line.wait, "c"),
        ]
        await line.run(calls, {"a": 100, "large": 1100, "b": 1200, "c": 1300})

    async def test_what_cannot_fit_by_its_deadline_is_rejected_at_once(self, line: Line) -> None:
        calls = [
            partial(line.wait, "in time", 5, timeout=0.5),
            partial(line.wait, "too late", 5, timeout=0.999),
            partial(line.wait, "small", 1, timeout=0.6),
        ]
        await line.run(calls, {"in time": 500, "small": 600})
        assert line.rejected["too late"].retry_after_seconds == 1.0

    async def test_what_exceeds_the_capacity_is_rejected_at_once(self, line: Line) -> None:
        await line.wait("never", 11)
        assert math.isinf(line.rejected["never"].retry_after_seconds)

    async def test_callers_that_do_not_wait_are_rejected_while_others_do(self, line: Line) -> None:
        async def hasty() -> None:
            line.rejected["hasty"] = await line.world.refusal(rps=1)

        await line.run([partial(line.wait, "patient", 3), hasty], {"patient": 300})
        assert line.rejected["hasty"].retry_after_seconds == 0.4

    async def test_callers_of_a_full_bucket_delay_no_other_bucket(self, line: Line) -> None:
        calls = [
            partial(line.wait, "full", 10),
            partial(line.wait, "other", entity_id="user-2"),
        ]
        await line.run(calls, {"full": 1000, "other": 0})

    async def test_clients_of_one_store_are_served_in_the_order_of_their_writes(
        self, line: Line
    ) -> None:
        other = RateLimiter(await line.world.open())
        calls = [
            partial(line.wait, number, limiter=other if number % 2 else None) for number in range(6)
        ]
        await line.run(calls, {number: 100 * (number + 1) for number in range(6)})

    async def test_every_limit_that_is_named_must_have_the_tokens(self, world: World) -> None:
        await world.configure(RPS, Limit.custom("slow", 10, 1, 1))
        await world.take(rps=10, slow=10)
        line = Line(world)
        await line.run([partial(line.wait, "both", slow=1)], {"both": 1000})

    async def test_a_limit_that_is_not_named_must_have_repaid_its_debt(self, world: World) -> None:
        await world.configure(RPS, Limit.custom("slow", 10, 1, 1))
        await world.take(rps=10)
        await world.owe(slow=12)
        line = Line(world)
        await line.run([partial(line.wait, "patient")], {"patient": 2000})
        await world.owe(slow=10)
        await line.wait("hasty", timeout=1)
        assert "hasty" in line.rejected

    async def test_beyond_a_minute_callers_queue_until_they_can_reserve(self, world: World) -> None:
        await world.configure(Limit.custom("rps", 50, 1, 1))
        await world.take(rps=50)
        line = Line(world)
        calls = [
            partial(line.wait, "reserved", 50, timeout=60),
            partial(line.wait, "first", 30, timeout=600),
            partial(line.wait, "second", 10, timeout=600),
            partial(line.wait, "impatient", 20, timeout=61),
        ]
        await line.run(calls, {"reserved": 50_000, "first": 80_000, "second": 90_000})
        assert list(line.rejected) == ["impatient"]

    async def test_callers_that_can_reserve_do_not_queue_behind_those_that_cannot_yet(
        self, world: World
    ) -> None:
        await world.configure(Limit.custom("rps", 100, 1, 1))
        await world.take(rps=100)
        line, clock = Line(world), world.clock

        async def second() -> None:
            await until(lambda: clock.waiting == 1)
            await line.wait("second", 100, timeout=600)

        async def small() -> None:
            await until(lambda: clock.waiting == 2)
            clock.advance(ms=100_000)
            # Then the second one is the head.
            await until(lambda: "first" in line.entered and clock.waiting == 1)
            clock.advance(ms=10_000)
            await line.wait("small", 5, timeout=5)

        async def end() -> None:
            try:
                await until(lambda: "small" in line.entered and clock.waiting == 1)
            finally:  # the others must end, too
                clock.set(line.started_ms + 300_000)

        calls: list[Call] = [partial(line.wait, "first", 100, timeout=600), second, small, end]
        await agather(calls)
        assert line.entered == {"first": 100_000, "small": 110_000, "second": 300_000}

    async def test_a_lease_that_was_waited_for_is_one_like_any_other(self, line: Line) -> None:
        world = line.world

        async def use() -> None:
            async with world.limiter.acquire(USER, API, {"rps": 2}, timeout=1) as lease:
                assert lease.consumed == {"rps": 2}
                await lease.adjust(rps=-1)
                line.entered["use"] = 200

        await line.run([use], {"use": 200})
        assert await world.level("rps") == 1000
        assert await world.spent("rps") == 11
        with failing():
            async with world.limiter.acquire(USER, API, {"rps": 1}, timeout=1):
                raise Failure
        assert await world.spent("rps") == 11

    async def test_a_child_waits_for_its_own_bucket_and_then_for_its_parent(
        self, world: World
    ) -> None:
        await world.repo.set_limits("key", [RPS])
        await world.repo.set_limits("team", [Limit.custom("rps", 20, 5, 1)])
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rps=10)
        await world.take("team", rps=10)
        line = Line(world)
        await line.run([partial(line.wait, "child", 5, entity_id="key")], {"child": 1000})
        assert await world.spent("rps", "key") == 15
        assert await world.spent("rps", "team") == 25

    async def test_a_child_whose_parent_has_too_few_tokens_is_charged_nothing(
        self, world: World
    ) -> None:
        await world.repo.set_limits("key", [RPS])
        await world.repo.set_limits("team", [Limit.per_hour("rps", 10)])
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rps=10)
        line = Line(world)
        await line.wait("child", 1, entity_id="key", timeout=30)
        statuses = line.rejected["child"].statuses
        assert [each.entity_id for each in statuses] == ["key", "team"]
        assert await world.spent("rps", "key") == 10
        assert await world.spent("rps", "team") == 10

    @for_each("timeout", [-1, math.nan, "5", True, [1]])
    async def test_what_is_no_duration_is_bad_input(self, world: World, timeout: float) -> None:
        with pytest.raises(ValidationError, match="timeout"):
            world.limiter.acquire(USER, API, {"rps": 1}, timeout=timeout)

    @for_each("timeout", [None, 0, 0.0])
    async def test_without_a_timeout_no_caller_waits(
        self, world: World, timeout: float | None
    ) -> None:
        await world.configure(RPS)
        with pytest.raises(RateLimitExceeded):
            async with world.limiter.acquire(USER, API, {"rps": 11}, timeout=timeout):
                pass

    async def test_real_time_is_waited_for_and_no_longer(self, world: World) -> None:
        await world.repo.set_system_defaults([Limit.per_second("rps", 20)])
        limiter = RateLimiter(await world.open(clock=None, request_timeout=10))
        measured = []
        for number in range(ATTEMPTS):
            entity_id = f"user-{number}"
            with Stopwatch() as since_empty:
                async with limiter.acquire(entity_id, API, {"rps": 20}):
                    pass
                with Stopwatch() as watch:
                    async with limiter.acquire(entity_id, API, {"rps": 2}, timeout=math.inf):
                        pass
            # The clock may be corrected meanwhile, by more than that on a starved machine.
            if since_empty.seconds > 0.08 and watch.within(0.1):
                return
            measured.append((since_empty, watch))
        pytest.fail(f"not once: {measured}")

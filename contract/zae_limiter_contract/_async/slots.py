"""Limits on calls in flight. A lease holds slots until its block ends or the lease expires."""

from __future__ import annotations

import asyncio  # unasync: remove
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from math import inf

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.hooks import Hooks, LostEvent
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.together import agather

TWO = Limit.concurrent("parallel", 2, lease_ttl=60)
SOFT = Limit.concurrent("parallel", 1, lease_ttl=60, soft=True)
RPM = Limit.per_minute("rpm", 10)
KEYS = ("key-1", "key-2", "key-3")


class Stop(BaseException):
    """An error that programs end with; no `Exception`."""


RAISED_BY_HOOKS = [
    Failure,
    Stop,
    SystemExit,
    asyncio.CancelledError,  # unasync: remove
    # sync: KeyboardInterrupt,
]
WAIT_S = 20.0  # for what another task does; on a busy machine that may take a while


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a task in the background has done its work."""
    end = time.monotonic() + WAIT_S
    while not await holds():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.02)  # unasync: remove
        # sync: time.sleep(0.02)


async def holds(world: World) -> dict[int, int]:
    """Return the held slots by their moment of expiry."""
    charging = world.repo.charging
    image = await charging.buckets.get(charging.namespace_id, USER, API, world.clock)
    assert image is not None
    moments = (image.holds or {})["parallel"]
    return {moment: count for moment, count in moments.items() if count}


async def share_slots(world: World, slots: int) -> None:
    """Let children share the slots of their parent."""
    await world.repo.set_limits("team", [Limit.concurrent("parallel", slots)])
    await world.configure(Limit.concurrent("parallel", 100))
    for key in KEYS:
        await world.repo.create_entity(key, parent_id="team", cascade=True)


class SlotContract(Contract):
    """There are never more calls in flight than slots."""

    async def test_an_acquire_holds_a_slot_until_its_block_ends(self, world: World) -> None:
        await world.configure(TWO, RPM)
        async with world.acquire(rpm=1) as lease:
            assert lease.consumed == {"rpm": 1}
            assert not lease.lost
            async with world.acquire(rpm=1):
                refused = await world.refusal(rpm=1)
                assert [each.limit_name for each in refused.violations] == ["parallel"]
                assert refused.retry_after_seconds == 1
                assert await world.tokens("parallel") == 0
            await world.take(rpm=1)
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 7}

    async def test_a_rejected_acquire_changes_neither_slots_nor_tokens(self, world: World) -> None:
        await world.configure(TWO, RPM)
        await world.refusal(rpm=11)
        async with world.acquire(rpm=1, parallel=2):
            await world.refusal(rpm=1)
            assert await world.tokens("rpm") == 9
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 9}

    async def test_an_acquire_may_take_several_slots_or_none(self, world: World) -> None:
        await world.configure(TWO)
        async with world.acquire(parallel=2) as lease:
            assert lease.consumed == {}
            await world.take(parallel=0)
            await world.refusal()
        assert (await world.refusal(parallel=3)).retry_after_seconds == inf
        async with world.acquire(parallel=0) as lease:
            await lease.consume(parallel=2)
            await world.refusal()
        await world.take(parallel=2)

    async def test_slots_return_when_the_block_fails(self, world: World) -> None:
        await world.configure(TWO, RPM)
        with failing():
            async with world.acquire(rpm=3):
                raise Failure
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 10}

    async def test_slots_return_with_what_is_adjusted(self, world: World) -> None:
        await world.configure(TWO, RPM)
        async with world.acquire(rpm=3) as lease:
            await lease.adjust(rpm=2)
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 5}

    async def test_slots_are_neither_adjusted_nor_settled(self, world: World) -> None:
        await world.configure(TWO, RPM)
        async with world.acquire(rpm=1) as lease:
            for change in (lease.adjust, lease.release, lease.settle):
                with pytest.raises(ValidationError, match="return when the block ends"):
                    await change(parallel=1)
        assert await world.tokens("parallel") == 2

    async def test_slots_return_whatever_a_failure_keeps(self, world: World) -> None:
        await world.configure(TWO, RPM)
        with failing():
            async with world.acquire(rpm=3) as lease:
                await lease.settle(rpm=4)
                raise Failure
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 6}
        with failing():
            async with world.limiter.acquire(USER, API, {"rpm": 3}, on_error="keep"):
                raise Failure
        assert await world.limiter.available(USER, API) == {"parallel": 2, "rpm": 3}

    async def test_slots_are_no_usage(self, world: World) -> None:
        await world.configure(TWO, RPM)
        async with world.acquire(rpm=3):
            pass
        snapshots, _ = await world.repo.get_usage_snapshots(USER, API, window_type="hourly")
        assert [each.counters for each in snapshots] == [{"rpm": 3}]
        assert await world.spent("parallel") == 0

    # --- soft slots

    async def test_soft_slots_count_the_calls_beyond_them(self, world: World) -> None:
        await world.configure(SOFT, RPM)
        async with (
            world.acquire(rpm=1) as first,
            world.acquire(rpm=1),
            world.acquire(rpm=1) as last,
        ):
            assert not last.shadowed
            for lease, free in ((first, 0), (last, -2)):
                slots, _ = lease.statuses
                assert (slots.available, slots.requested) == (free, 1)
                assert (slots.overdrawn, slots.exceeded) == (free < 0, False)
            answer = await world.limiter.check_availability(USER, API, {"rpm": 1})
            assert answer.available
            assert answer.statuses[0].overdrawn
            assert sum((await holds(world)).values()) == 3
            await world.refusal(rpm=8)
            await world.take(rpm=7)
        assert await world.limiter.available(USER, API) == {"parallel": 1, "rpm": 0}
        assert await holds(world) == {}
        assert await world.spent("parallel") == 0

    async def test_an_acquire_may_take_more_soft_slots_than_there_are(self, world: World) -> None:
        await world.configure(SOFT)
        async with world.acquire(parallel=5) as lease:
            await lease.consume(parallel=2)
            assert await world.tokens("parallel") == -6
            await world.take(parallel=0)
        assert await world.tokens("parallel") == 1

    async def test_nobody_waits_for_soft_slots(self, world: World) -> None:
        await world.configure(SOFT, RPM)
        waiting = world.limiter.acquire(USER, API, {"rpm": 1}, timeout=WAIT_S)
        async with world.acquire(rpm=1), waiting:
            assert await world.tokens("parallel") == -1
        async with world.acquire(rpm=8):
            refused = await world.refusal(rpm=1)
        assert [each.limit_name for each in refused.violations] == ["rpm"]

    async def test_soft_slots_that_are_not_renewed_expire(self, world: World) -> None:
        await world.configure(SOFT)
        async with world.acquire(parallel=3) as lost:
            world.clock.advance(seconds=60)
            assert lost.lost
            async with world.acquire():
                assert await world.tokens("parallel") == 0
        assert await world.tokens("parallel") == 1
        assert await holds(world) == {}

    async def test_soft_slots_of_a_parent_do_not_reject_its_children(self, world: World) -> None:
        await world.repo.set_limits("team", [SOFT])
        await world.configure(TWO)
        for key in KEYS:
            await world.repo.create_entity(key, parent_id="team", cascade=True)
        async with (
            world.limiter.acquire(KEYS[0], API, {}),
            world.limiter.acquire(KEYS[0], API, {}),
            world.limiter.acquire(KEYS[1], API, {}),
        ):
            assert await world.limiter.available("team", API) == {"parallel": -2}
            with pytest.raises(RateLimitExceeded) as caught:
                async with world.limiter.acquire(KEYS[0], API, {}):
                    pass
            assert [each.entity_id for each in caught.value.violations] == [KEYS[0]]
        assert await world.limiter.available("team", API) == {"parallel": 1}

    async def test_slots_that_become_soft_or_hard_stay_held(self, world: World) -> None:
        hard = replace(SOFT, soft=False)
        await world.configure(hard)
        async with world.acquire():
            await world.refusal()
            await world.configure(SOFT)
            async with world.acquire():
                await world.configure(hard)
                await world.refusal()
                assert await world.tokens("parallel") == -1
            await world.refusal()
        assert await world.tokens("parallel") == 1
        await world.take()

    # --- expiry

    async def test_slots_that_are_not_renewed_expire(self, world: World) -> None:
        await world.configure(TWO)
        async with world.acquire(parallel=2) as lost:
            world.clock.advance(seconds=59)
            assert lost.lost
            await world.refusal()
            world.clock.advance(seconds=1)
            async with world.acquire() as other:
                assert await world.limiter.available(USER, API) == {"parallel": 1}
                assert not other.lost
        # The end of the lost lease has given back nothing: its slots were free already.
        assert await world.limiter.available(USER, API) == {"parallel": 2}
        assert await holds(world) == {}

    async def test_a_state_tells_when_the_first_held_slot_expires(self, world: World) -> None:
        await world.configure(TWO)
        assert [each.holds_expire_ms for each in await world.repo.get_buckets(USER)] == []
        async with world.acquire(parallel=1):
            (state,) = await world.repo.get_buckets(USER)
            left_ms = (state.holds_expire_ms or 0) - world.clock()
            assert 0 < left_ms <= 60_000
        (state,) = await world.repo.get_buckets(USER)
        assert state.holds_expire_ms is None

    async def test_a_lost_lease_frees_no_slot_of_another(self, world: World) -> None:
        await world.configure(TWO)
        lost = world.acquire(parallel=2)
        await lost.__aenter__()
        world.clock.advance(seconds=61)
        async with world.acquire(parallel=2):
            await lost.__aexit__(None, None, None)
            await world.refusal()

    async def test_the_end_of_a_call_frees_no_slot_of_an_entity_that_was_created_again(
        self, world: World
    ) -> None:
        await world.configure(Limit.concurrent("parallel", 1))
        await world.repo.create_entity(USER)
        old = world.acquire()
        await old.__aenter__()
        await world.repo.delete_entity(USER)
        await world.repo.create_entity(USER)
        async with world.acquire():
            await old.__aexit__(None, None, None)
            await world.refusal()
        assert await world.limiter.available(USER, API) == {"parallel": 1}
        await world.take()

    async def test_a_lease_of_a_deleted_entity_is_lost_and_renews_no_slot_of_another(
        self, world: World
    ) -> None:
        await world.configure(Limit.concurrent("parallel", 2, lease_ttl=3))
        world.clock.set(world.clock() // 1000 * 1000)
        await world.repo.create_entity(USER)
        async with world.acquire() as old:
            await world.repo.delete_entity(USER)
            await world.repo.create_entity(USER)
            async with world.acquire() as new:
                world.clock.advance(seconds=1)

                async def is_lost() -> bool:
                    return old.lost

                await until(is_lost)
                assert not new.lost
                assert list((await holds(world)).values()) == [1]
        assert await world.limiter.available(USER, API) == {"parallel": 2}

    async def test_a_lease_is_renewed_while_its_block_runs(self, world: World) -> None:
        await world.configure(Limit.concurrent("parallel", 2, lease_ttl=3))
        world.clock.set(world.clock() // 1000 * 1000)
        async with world.acquire() as first, world.acquire() as second:
            (expires_ms,) = await holds(world)
            world.clock.advance(seconds=1)

            async def renewed() -> bool:
                held = [*(first._slots or ()), *(second._slots or ())]  # noqa: SLF001 - both know it
                return {each.expires_ms for each in held} == {expires_ms + 1000}

            async def kept() -> bool:  # the store may show it before the answer has come
                return not first.lost and not second.lost

            await until(renewed)
            assert list(await holds(world)) == [expires_ms + 1000]
            world.clock.advance(ms=1500)
            await until(kept)
            await world.refusal()
        await world.take(parallel=2)

    async def test_a_hook_tells_when_a_lease_is_lost(self, world: World) -> None:
        await world.configure(Limit.concurrent("parallel", 1, lease_ttl=3))
        events: list[LostEvent] = []

        class Lost(Hooks):
            def on_lost(self, event: LostEvent) -> None:
                events.append(event)

        limiter = type(world.limiter)(world.repo, hooks=Lost())
        async with limiter.acquire(USER, API, {}) as lease:
            assert lease.remaining == {"parallel": 0}
            (status,) = lease.statuses
            assert (status.available, status.requested, status.exceeded) == (0, 1, False)
            assert lease.headers() == {}
            world.clock.advance(seconds=3)

            async def told() -> bool:
                return bool(events)

            await until(told)
            assert lease.lost
        assert [(event.entity_id, event.resource) for event in events] == [(USER, API)]

    async def test_renewal_goes_on_whatever_hooks_and_log_handlers_raise(
        self, world: World
    ) -> None:
        await world.configure(Limit.concurrent("parallel", 1, lease_ttl=3))
        world.clock.set(world.clock() // 1000 * 1000)
        told = ["nothing"]

        class Failing(Hooks, logging.Handler):
            def on_lost(self, event: LostEvent) -> None:
                told.append("hook")
                raise Failure

            def emit(self, record: logging.LogRecord) -> None:
                told.append("handler")
                raise Failure

        failing_one = Failing()
        limiter = type(world.limiter)(world.repo, hooks=failing_one)
        logger = logging.getLogger("zae_limiter")
        logger.addHandler(failing_one)
        try:
            async with limiter.acquire(USER, API, {}) as lost:
                world.clock.advance(seconds=3)

                async def is_told() -> bool:
                    return {"hook", "handler"} <= set(told)

                await until(is_told)
                assert lost.lost
            async with limiter.acquire(USER, API, {}) as lease:
                (expires_ms,) = await holds(world)
                world.clock.advance(seconds=1)

                async def renewed() -> bool:
                    return list(await holds(world)) == [expires_ms + 1000]

                await until(renewed)
                assert not lease.lost
                await world.refusal()
        finally:
            logger.removeHandler(failing_one)

    async def test_a_hook_that_raises_anything_does_not_end_the_renewal_of_other_leases(
        self, world: World
    ) -> None:
        count = len(RAISED_BY_HOOKS)
        await world.configure(Limit.concurrent("parallel", count + 1, lease_ttl=3))
        world.clock.set(world.clock() // 1000 * 1000)
        errors = list(RAISED_BY_HOOKS)

        class Failing(Hooks):
            def on_lost(self, event: LostEvent) -> None:
                raise errors.pop()

        limiter = type(world.limiter)(world.repo, hooks=Failing())
        async with AsyncExitStack() as calls:
            lost = [
                await calls.enter_async_context(limiter.acquire(USER, API, {}))
                for _ in range(count)
            ]
            world.clock.advance(seconds=2)
            async with world.acquire() as lease:
                expires_ms = max(await holds(world))
                world.clock.advance(ms=1500)  # the others are lost, this one is due

                async def renewed() -> bool:
                    return list(await holds(world)) == [expires_ms + 1000]

                await until(renewed)
                assert all(each.lost for each in lost)
                assert not lease.lost
        assert errors == []

    async def test_slots_are_shared_with_other_clients(self, world: World) -> None:
        await world.configure(TWO)
        other = World(world.spec, world.clock)
        other.repo = await world.open()
        other.limiter = type(world.limiter)(other.repo)
        async with world.acquire(), other.acquire():
            await world.refusal()
            await other.refusal()
        world.clock.advance(seconds=2)  # beyond what a client remembers of a rejection
        await world.take(parallel=2)

    async def test_more_slots_are_free_at_once_and_fewer_stay_held(self, world: World) -> None:
        await world.configure(TWO)
        async with world.acquire(), world.acquire():
            await world.configure(Limit.concurrent("parallel", 3, lease_ttl=60))
            async with world.acquire():
                assert await world.tokens("parallel") == 0
                await world.configure(Limit.concurrent("parallel", 1, lease_ttl=60))
                await world.refusal()
                assert await world.tokens("parallel") == -2
            assert await world.tokens("parallel") == -1
        assert await world.limiter.available(USER, API) == {"parallel": 1}
        async with world.acquire():
            await world.refusal()

    async def test_a_rate_becomes_a_limit_on_calls_in_flight_and_back(self, world: World) -> None:
        await world.configure(Limit.per_minute("parallel", 5), RPM)
        await world.take(parallel=5)
        await world.configure(TWO, RPM)
        async with world.acquire(), world.acquire():
            await world.refusal()
            await world.configure(Limit.per_minute("parallel", 5), RPM)
            await world.take(parallel=5)
            await world.configure(TWO, RPM)
            async with world.acquire(), world.acquire():
                await world.refusal()
                world.clock.advance(seconds=61)  # what was held before is not free once more
                async with world.acquire(), world.acquire():
                    await world.refusal()
        assert await world.tokens("parallel") == 2

    async def test_a_child_and_its_parent_hold_a_slot_each(self, world: World) -> None:
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.repo.set_limits("team", [TWO])
        await world.configure(Limit.concurrent("parallel", 5), RPM)
        async with world.acquire("key", rpm=1), world.acquire("team"):
            refused = await world.refusal("key", rpm=1)
            assert [each.entity_id for each in refused.violations] == ["team"]
            assert await world.tokens("parallel", "key") == 4
            assert await world.tokens("rpm", "key") == 9
        for entity_id, free in (("key", 5), ("team", 2)):
            assert await world.tokens("parallel", entity_id) == free

    async def test_limits_of_a_call_may_have_slots(self, world: World) -> None:
        await world.configure(RPM)
        limits = [RPM, TWO]
        async with world.acquire(limits=limits), world.acquire(limits=limits):
            assert not await world.granted(limits=limits)
        await world.configure(RPM, Limit.concurrent("parallel", 9))
        async with world.acquire(limits=limits), world.acquire(limits=limits):
            await world.take()
            assert not await world.granted(limits=limits)
            free = await world.limiter.available(USER, API)
            assert free == {"rpm": 10, "parallel": 9}

    async def test_a_reset_leaves_slots_to_their_holders(self, world: World) -> None:
        await world.configure(TWO, RPM)
        async with world.acquire(rpm=5):
            await world.repo.reset_bucket(USER, API)
            assert await world.limiter.available(USER, API) == {"parallel": 1, "rpm": 10}
            with pytest.raises(ValidationError, match="slots"):
                await world.repo.top_up(USER, API, {"parallel": 1})
        assert await world.tokens("parallel") == 2

    async def test_stored_limits_read_back_as_they_were(self, world: World) -> None:
        limits = [TWO, RPM]
        await world.repo.set_system_defaults(limits)
        await world.repo.set_resource_defaults(API, limits)
        await world.repo.set_limits(USER, limits)
        assert (await world.repo.get_system_defaults())[0] == limits
        assert await world.repo.get_resource_defaults(API) == limits
        assert await world.repo.get_limits(USER) == limits

    @pytest.mark.parametrize(
        ("tasks", "times"), [(10, 5), pytest.param(50, 20, marks=pytest.mark.slow)]
    )
    async def test_many_at_once_never_exceed_the_limit(
        self, world: World, tasks: int, times: int
    ) -> None:
        await world.configure(Limit.concurrent("parallel", 3))
        running, most, granted = [0], [0], [0]

        async def call() -> None:
            left = times
            while left:
                try:
                    async with world.acquire():
                        running[0] += 1
                        most[0] = max(most[0], running[0])
                        await asyncio.sleep(0)  # unasync: remove
                        # sync: time.sleep(0)
                        running[0] -= 1
                        granted[0] += 1
                        left -= 1
                except RateLimitExceeded:
                    await asyncio.sleep(0.001)  # unasync: remove
                    # sync: time.sleep(0.001)

        await agather([call] * tasks)
        assert granted[0] == tasks * times
        assert 1 <= most[0] <= 3
        assert await world.limiter.available(USER, API) == {"parallel": 3}

    async def test_an_acquire_waits_for_a_slot(self, world: World) -> None:
        await world.configure(Limit.concurrent("parallel", 1), RPM)
        served: list[int] = []
        first = world.acquire()
        await first.__aenter__()

        async def wait(number: int) -> None:
            async with world.limiter.acquire(USER, API, {"rpm": 1}, timeout=WAIT_S):
                served.append(number)

        async def release() -> None:
            async def all_wait() -> bool:
                return waiting() == 3

            await until(all_wait)
            assert served == []
            await first.__aexit__(None, None, None)

        def waiting() -> int:
            return world.repo.charging.slot_lines.waiting((USER, API))

        calls: list[Callable[[], Awaitable[None]]] = [partial(wait, number) for number in (1, 2, 3)]
        await agather([*calls, release])
        assert sorted(served) == [1, 2, 3]
        assert await world.limiter.available(USER, API) == {"parallel": 1, "rpm": 7}
        assert waiting() == 0

    async def test_waiting_for_a_slot_ends_at_the_deadline(self, world: World) -> None:
        await world.configure(Limit.concurrent("parallel", 1), RPM)
        async with world.acquire(rpm=10):

            async def give_up() -> None:
                with pytest.raises(RateLimitExceeded):
                    async with world.limiter.acquire(USER, API, {}, timeout=0.5):
                        pass

            async def pass_time() -> None:
                async def is_waiting() -> bool:
                    return world.repo.charging.slot_lines.waiting((USER, API)) == 1

                await until(is_waiting)
                world.clock.advance(ms=501)

            await agather([give_up, pass_time])
            for hopeless in ({"parallel": 2}, {"rpm": 11}, {"rpm": 10}):
                with pytest.raises(RateLimitExceeded):
                    await world.limiter.acquire(USER, API, hopeless, timeout=5).__aenter__()
        assert await world.tokens("parallel") == 1

    async def test_siblings_wait_for_the_slots_of_their_parent_in_one_order(
        self, world: World
    ) -> None:
        await share_slots(world, 1)
        await wait_in_one_order(world, [world.limiter])

    async def test_callers_of_all_repositories_of_a_store_wait_in_one_order(
        self, world: World
    ) -> None:
        await share_slots(world, 1)
        other = RateLimiter(await world.open())

        def later() -> int:
            return world.clock() + 500

        await wait_in_one_order(world, [world.limiter, other, RateLimiter(world.repo, clock=later)])

    async def test_a_child_is_not_starved_by_the_calls_of_its_siblings(self, world: World) -> None:
        await share_slots(world, 2)
        await pass_busy_siblings(world, world.limiter)

    async def test_a_child_is_not_starved_by_siblings_of_another_repository(
        self, world: World
    ) -> None:
        await share_slots(world, 2)
        await pass_busy_siblings(world, RateLimiter(await world.open()))

    async def test_a_child_is_not_starved_by_siblings_of_another_clock(self, world: World) -> None:
        await share_slots(world, 2)
        await pass_busy_siblings(world, RateLimiter(world.repo, clock=world.clock))


async def wait_in_one_order(world: World, limiters: list[RateLimiter]) -> None:
    """Let callers of siblings arrive one after the other, and check the order of their service."""
    served: list[int] = []
    first = world.acquire(KEYS[0])
    await first.__aenter__()
    keys = [KEYS[0], KEYS[1], KEYS[0], KEYS[2], KEYS[1], KEYS[0], KEYS[2]]

    async def wait(number: int, key: str) -> None:
        async def is_next() -> bool:
            return all_waiting() == number

        await until(is_next)
        limiter = limiters[number % len(limiters)]
        async with limiter.acquire(key, API, {}, timeout=WAIT_S):
            served.append(number)

    async def release() -> None:
        async def all_wait() -> bool:
            return all_waiting() == len(keys)

        await until(all_wait)
        await first.__aexit__(None, None, None)

    def all_waiting() -> int:
        return sum(world.repo.charging.slot_lines.waiting((key, API)) for key in KEYS)

    calls: list[Callable[[], Awaitable[None]]] = [
        partial(wait, number, key) for number, key in enumerate(keys)
    ]
    await agather([*calls, release])
    assert served == list(range(len(keys)))
    assert all_waiting() == 0
    assert await world.tokens("parallel", "team") == 1


async def pass_busy_siblings(world: World, limiter: RateLimiter) -> None:
    """Let one call through ``limiter`` pass siblings that always wait for the same two slots."""
    workers, most = 6, 120
    began: list[str] = []  # the child of each call, in the order of arrival
    passed: list[int] = []

    async def work(key: str) -> None:
        while not passed and len(began) < most:
            await call(key)

    async def call(key: str) -> None:
        began.append(key)
        async with world.limiter.acquire(key, API, {}, timeout=WAIT_S):
            await asyncio.sleep(0.002)  # unasync: remove
            # sync: time.sleep(0.002)

    async def wait() -> None:
        async def is_busy() -> bool:
            return len(began) > 2 * workers

        await limiter.available(KEYS[2], API)  # reads the limits: what follows is the wait alone
        await until(is_busy)
        before = len(began)
        async with limiter.acquire(KEYS[2], API, {}, timeout=WAIT_S):
            passed.append(len(began) - before)

    calls: list[Callable[[], Awaitable[None]]] = [
        partial(work, KEYS[number % 2]) for number in range(workers)
    ]
    await agather([*calls, wait])
    # Each worker may have begun its next call, which waits behind this one. A thread that is not
    # scheduled at once joins the line a little later.
    assert passed[0] <= 4 * workers

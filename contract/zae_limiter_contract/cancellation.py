"""Cancelled tasks, in the async tree only. Interrupts are the counterpart in the sync tree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest

from zae_limiter._async.repository import Repository
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

CAPACITY = 1000
LIMIT = Limit.per_minute("rpm", CAPACITY)
ALL, USD = "all", Limit.budget("usd", "100.00", per="month")


Change = Callable[[Repository], Coroutine[Any, Any, object]]


async def set_limits(repository: Repository) -> None:
    await repository.set_limits(USER, [Limit.per_minute("rpm", 50)], API)


async def set_resource_defaults(repository: Repository) -> None:
    await repository.set_resource_defaults(API, [Limit.per_minute("rpm", 70)])


async def create_entity(repository: Repository) -> None:
    await repository.create_entity(USER, parent_id="team", cascade=True)


async def create_and_delete_entity(repository: Repository) -> None:
    await create_entity(repository)
    await repository.delete_entity(USER)


async def create_and_move_entity(repository: Repository) -> None:
    await create_entity(repository)
    await repository.set_parent(USER, "other-team")


CHANGES: list[Change] = [
    set_limits,
    set_resource_defaults,
    create_entity,
    create_and_delete_entity,
    create_and_move_entity,
]


class CancellationContract(Contract):
    """A cancelled lease costs nothing, at whatever moment the cancellation comes."""

    @pytest.fixture
    async def world_with_family(self, world: World) -> World:
        """``child`` cascades to ``parent``."""
        await world.configure(LIMIT)
        await world.repo.create_entity("child", parent_id="parent", cascade=True)
        return world

    async def test_a_task_cancelled_in_the_block_gives_everything_back(self, world: World) -> None:
        await world.configure(LIMIT)
        entered = asyncio.Event()

        async def hold() -> None:
            async with world.acquire(rpm=10) as lease:
                await lease.consume(rpm=5)
                await lease.adjust(rpm=100)
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        await entered.wait()
        assert await world.tokens() == CAPACITY - 15
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await world.tokens() == CAPACITY

    async def test_a_task_cancelled_in_the_block_keeps_what_was_settled(self, world: World) -> None:
        await world.configure(LIMIT)
        entered = asyncio.Event()

        async def hold() -> None:
            async with world.acquire(rpm=10) as lease:
                await lease.settle(rpm=25)
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await world.tokens() == CAPACITY - 25

    async def test_a_task_cancelled_while_it_settles_costs_what_was_settled_or_nothing(
        self, world: World
    ) -> None:
        await world.configure(LIMIT)
        await world.take(rpm=0)
        for turns in range(20):
            stage = ["enter"]
            task = asyncio.create_task(_settled_now(world, stage))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            costs = {"enter": {0}, "settle": {17}, "settled": {17}}[stage[0]]
            assert CAPACITY - await world.tokens() in costs, (turns, stage)
            await world.repo.reset_bucket(USER, API)

    @pytest.mark.parametrize("entity_id", [USER, "child"])
    async def test_a_task_cancelled_while_it_enters_or_leaves_is_counted_wholly_or_not_at_all(
        self, world_with_family: World, entity_id: str
    ) -> None:
        world = world_with_family
        await world.take(entity_id, rpm=0)
        spent = 0
        for turns in range(40):
            stage = ["enter"]
            task = asyncio.create_task(_adjusted(world, entity_id, stage))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            found = CAPACITY - await world.tokens("rpm", entity_id) - spent
            assert found in ({0, 17} if stage[0] == "leave" else {0}), (turns, stage)
            spent += int(found)
        if entity_id == "child":
            assert await world.tokens("rpm", "parent") == CAPACITY - spent

    @pytest.mark.parametrize("entity_id", [USER, "child"])
    async def test_after_many_random_cancellations_the_level_is_what_the_survivors_took(
        self, world_with_family: World, entity_id: str
    ) -> None:
        world, chance = world_with_family, random.Random(4)
        tasks = [asyncio.create_task(world.take(entity_id, rpm=1)) for _ in range(200)]
        for task in chance.sample(tasks, 120):
            task.cancel()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        survivors = outcomes.count(None)
        assert survivors >= 80
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in outcomes)
        owners = [entity_id] if entity_id == USER else ["child", "parent"]
        for owner in owners:
            assert await world.tokens("rpm", owner) == CAPACITY - survivors

    async def test_a_task_cancelled_between_two_resources_is_counted_wholly_or_not_at_all(
        self, world_with_family: World
    ) -> None:
        """Four buckets are charged one after the other on a store that cannot do it at once."""
        world, spent = world_with_family, 0
        buckets = [(entity_id, each) for entity_id in ("child", "parent") for each in (API, ALL)]
        await _adjusted_everywhere(world, [])
        spent += 17
        for turns in range(40):
            stage = ["enter"]
            task = asyncio.create_task(_adjusted_everywhere(world, stage))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            levels = {await world.tokens("rpm", *bucket) for bucket in buckets}
            assert len(levels) == 1, (turns, stage, levels)
            found = CAPACITY - levels.pop() - spent
            assert found in ({0, 17} if stage[0] == "leave" else {0}), (turns, stage)
            spent += int(found)

    async def test_after_many_cancellations_over_several_resources_no_token_is_missing(
        self, world: World
    ) -> None:
        await world.repo.set_resource_defaults(API, [LIMIT])
        await world.repo.set_resource_defaults(ALL, [LIMIT, USD])

        entered: list[int] = []

        async def take() -> None:
            also: dict[str, dict[str, Any]] = {ALL: {"rpm": 2, "usd": "0.50"}}
            async with world.limiter.acquire(USER, API, {"rpm": 1}, also=also):
                entered.append(1)  # from here on its cost stays, also if it is cancelled

        chance = random.Random(5)
        tasks = [asyncio.create_task(take()) for _ in range(100)]
        for task in chance.sample(tasks, 60):
            task.cancel()
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(entered) >= outcomes.count(None) >= 40
        assert await world.tokens("rpm", USER, API) == CAPACITY - len(entered)
        assert await world.tokens("rpm", USER, ALL) == CAPACITY - 2 * len(entered)
        status = (await world.limiter.check_availability(USER, ALL)).statuses[1]
        assert (status.used, status.held) == (Decimal(len(entered)) / 2, Decimal(0))

    async def test_cancelling_twice_does_not_lose_the_refund(self, world: World) -> None:
        await world.configure(LIMIT)
        for turns in range(25):
            task = asyncio.create_task(_adjusted(world, USER, []))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await world.take(rpm=0)  # settled before this is answered
            assert await world.tokens() in (CAPACITY, CAPACITY - 17), turns
            await world.repo.reset_bucket(USER, API)

    async def test_a_timeout_around_the_block_gives_everything_back(self, world: World) -> None:
        await world.configure(LIMIT)
        with failing(TimeoutError):
            async with asyncio.timeout(None) as timeout, world.acquire(rpm=10):
                timeout.reschedule(asyncio.get_running_loop().time() + 0.05)
                await asyncio.Event().wait()
        assert await world.tokens() == CAPACITY

    async def test_a_consume_that_is_under_way_when_the_block_fails_is_given_back(
        self, world: World
    ) -> None:
        await world.configure(LIMIT)
        await world.take(rpm=100)
        for turns in range(5):
            with failing():
                async with world.acquire(rpm=10) as lease:
                    consuming = asyncio.create_task(lease.consume(rpm=5))
                    for _ in range(turns):
                        await asyncio.sleep(0)  # on its way to the store
                    raise Failure
            await asyncio.gather(consuming, return_exceptions=True)
            assert await world.tokens() == CAPACITY - 100, turns

    async def test_a_cancelled_operation_of_a_lease_lets_the_next_ones_go_on_in_order(
        self, world: World
    ) -> None:
        await world.configure(LIMIT)
        for turns in range(12):
            async with world.acquire(rpm=10) as lease:
                first = asyncio.create_task(lease.consume(rpm=5))
                cancelled = asyncio.create_task(lease.settle(rpm=30, now=True))
                last = asyncio.create_task(lease.consume(rpm=7))
                for _ in range(turns):
                    await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.gather(first, cancelled, last, return_exceptions=True)
                cost = lease.consumed["rpm"]
                assert cost in (22, 37), turns
                assert await world.tokens() == CAPACITY - cost, turns
            assert await world.tokens() == CAPACITY - cost, turns
            await world.repo.reset_bucket(USER, API)

    async def test_an_end_that_is_cancelled_while_it_waits_for_an_operation_is_written(
        self, world: World
    ) -> None:
        await world.configure(LIMIT)
        for turns in range(8):
            acquire = world.acquire(rpm=10)
            lease = await acquire.__aenter__()
            await lease.adjust(rpm=3)
            consuming = asyncio.create_task(lease.consume(rpm=5))
            await asyncio.sleep(0)
            ending = asyncio.create_task(acquire.__aexit__(None, None, None))
            for _ in range(turns):
                await asyncio.sleep(0)
            ending.cancel()
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.gather(consuming, ending, return_exceptions=True)
            if turns == 0:
                await acquire.__aexit__(None, None, None)  # the first task had not begun
            assert await world.tokens() == CAPACITY - 18, turns
            await world.repo.reset_bucket(USER, API)

    @pytest.mark.parametrize("change", CHANGES)
    async def test_a_cancelled_change_is_in_force_if_and_only_if_it_was_committed(
        self, world: World, change: Change
    ) -> None:
        if world.spec.capabilities.infrastructure:
            pytest.skip("a server may carry a request out after its caller was cancelled")
        for turns in range(12):
            await world.configure(LIMIT)
            await world.repo.delete_resource_defaults(API)
            await world.repo.set_limits("team", [Limit.per_minute("rpm", 3)])
            await world.repo.delete_entity(USER)
            await world.limiter.available(USER, API)  # its answer is cached now
            task = asyncio.create_task(change(world.repo))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            believed = await world.limiter.available(USER, API)
            await world.repo.invalidate_config_cache()
            assert await world.limiter.available(USER, API) == believed, turns

    async def test_the_store_still_answers_after_cancellations(self, world: World) -> None:
        await world.configure(LIMIT)
        tasks = [asyncio.create_task(world.take(rpm=1)) for _ in range(50)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5):
            await world.take(rpm=1)


async def _adjusted(world: World, entity_id: str, stage: list[str]) -> None:
    async with world.acquire(entity_id, rpm=10) as lease:
        stage[:] = ["block"]
        await lease.adjust(rpm=7)
        stage[:] = ["leave"]


async def _adjusted_everywhere(world: World, stage: list[str]) -> None:
    also = {ALL: {"rpm": 10}}
    async with world.limiter.acquire("child", API, {"rpm": 10}, also=also) as lease:
        stage[:] = ["block"]
        await lease.adjust(rpm=7)
        await lease.resource(ALL).adjust(rpm=7)
        stage[:] = ["leave"]


async def _settled_now(world: World, stage: list[str]) -> None:
    async with world.acquire(rpm=10) as lease:
        stage[:] = ["settle"]
        await lease.settle(rpm=17, now=True)
        stage[:] = ["settled"]
        await asyncio.sleep(0)

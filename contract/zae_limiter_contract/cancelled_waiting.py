"""Cancelled tasks that wait for tokens, in the async tree only."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.waiting import Line, until
from zae_limiter_contract._async.world import API, USER, World

RPS = Limit.per_second("rps", 10)


class CancelledWaitingContract(Contract):
    """A cancelled waiter leaves no trace."""

    async def test_callers_behind_a_cancelled_one_move_up_at_once(self, world: World) -> None:
        await world.configure(RPS)
        await world.take(rps=10)
        line, tasks = Line(world), []
        for number, amount in enumerate([1, 5, 1, 1]):
            tasks.append(asyncio.create_task(line.wait(number, amount)))
            await until(lambda: world.clock.waiting > len(tasks) - 1)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        for moment_ms, expected in [(199, [0]), (200, [0, 2]), (300, [0, 2, 3])]:
            world.clock.set(line.started_ms + 100)
            await until(lambda: 0 in line.entered)
            world.clock.set(line.started_ms + moment_ms)
            if moment_ms % 100 == 0:
                await until(lambda expected=expected: len(line.entered) == len(expected))  # type: ignore[misc]
            assert list(line.entered) == expected
        await asyncio.gather(*tasks, return_exceptions=True)
        assert line.entered == {0: 100, 2: 200, 3: 300}
        assert await world.spent("rps") == 13

    async def test_a_cancelled_waiter_counts_as_if_it_had_never_come(self, world: World) -> None:
        await world.configure(RPS)
        await world.take(rps=10)
        task = asyncio.create_task(Line(world).wait("cancelled", 7))
        await until(lambda: world.clock.waiting == 1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await world.level("rps") == 0
        assert await world.spent("rps") == 10
        if world.spec.capabilities.usage_history:
            usage = await world.repo.get_usage_summary(entity_id=USER, resource=API)
            assert usage.total == {"rps": 10}
            (snapshot,), _ = await world.repo.get_usage_snapshots(USER, API, "hourly")
            assert snapshot.total_events == 1

    async def test_cancelled_at_random_moments_no_token_is_lost_or_made(self, world: World) -> None:
        chance = random.Random(5)
        await world.configure(RPS)
        await world.take(rps=10)
        limiters = [world.limiter]
        if world.spec.shared:
            limiters.append(RateLimiter(await world.open()))
        line = Line(world)
        tasks = [
            asyncio.create_task(line.wait(number, limiter=chance.choice(limiters)))
            for number in range(20)
        ]
        cancelled = chance.sample(range(20), 8)
        for number in cancelled:
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            tasks[number].cancel()
        await asyncio.gather(*(tasks[number] for number in cancelled), return_exceptions=True)

        def all_wait() -> bool:
            return world.clock.waiting >= sum(not task.done() for task in tasks)

        while not all(task.done() for task in tasks):
            await until(all_wait)
            world.clock.advance(ms=100)
            await asyncio.sleep(0)
        assert await world.spent("rps") == 10 + len(line.entered)
        assert len(line.entered) == 12

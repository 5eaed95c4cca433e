"""``retry_after`` is the exact wait, to the millisecond."""

from __future__ import annotations

import math
import random

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.random_refusals import check_refusal
from zae_limiter_contract._async.world import API, USER, World

PERIODS = [1, 7, 60, 3600, 86_400]


class RetryAfterContract(Contract):
    """After exactly this wait a call is granted, and one millisecond earlier it is rejected."""

    async def test_waiting_the_retry_after_succeeds_and_one_millisecond_less_does_not(
        self, world: World
    ) -> None:
        chance = random.Random(7)
        for case in range(25):
            world.clock.advance(ms=chance.randrange(10**9))
            limits, spent, needed = _scarce(chance)
            entity_id = f"user-{case}"
            await world.take(entity_id, limits=limits, x=spent)
            refusal = await world.refusal(entity_id, limits=limits, x=needed)
            world.clock.advance(ms=_ms(refusal.retry_after_seconds) - 1)
            refusal = await world.refusal(entity_id, limits=limits, x=needed)
            assert refusal.retry_after_seconds == 0.001, (limits, spent, needed)
            world.clock.advance(ms=1)
            await world.take(entity_id, limits=limits, x=needed)

    async def test_a_rejection_has_a_violation_and_an_exact_wait_whatever_came_before(
        self, world: World
    ) -> None:
        refused = [await check_refusal(world, f"user-{seed}", seed) for seed in range(40)]
        assert sum(refused) > 10

    async def test_asking_beforehand_gives_the_same_wait_and_takes_nothing(
        self, world: World
    ) -> None:
        chance = random.Random(8)
        for case in range(10):
            limits, spent, needed = _scarce(chance)
            entity_id = f"user-{case}"
            await world.take(entity_id, limits=limits, x=spent)
            wait = await world.limiter.time_until_available(entity_id, API, {"x": needed}, limits)
            found = await world.limiter.check_availability(entity_id, API, {"x": needed}, limits)
            refusal = await world.refusal(entity_id, limits=limits, x=needed)
            assert wait == found.retry_after_seconds == refusal.retry_after_seconds
            assert list(found.statuses) == refusal.statuses
            assert not found.available

    async def test_the_wait_is_that_of_the_slowest_limit(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 60), Limit.per_hour("rph", 60))
        await world.take(rpm=60, rph=60)
        refusal = await world.refusal(rpm=10, rph=2)
        waits = {each.limit_name: each.retry_after_seconds for each in refusal.statuses}
        assert waits == {"rpm": 10, "rph": 120}
        assert refusal.retry_after_seconds == 120

    async def test_the_wait_of_a_cascade_is_that_of_the_slower_bucket(self, world: World) -> None:
        await world.repo.set_limits("key", [Limit.per_minute("rpm", 60)])
        await world.repo.set_limits("team", [Limit.per_hour("rpm", 60)])
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", rpm=60)
        refusal = await world.refusal("key", rpm=1)
        assert refusal.retry_after_seconds == 60
        world.clock.advance(ms=59_999)
        await world.refusal("key", rpm=1)
        world.clock.advance(ms=1)
        await world.take("key", rpm=1)

    async def test_what_fits_now_needs_no_wait(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 10))
        assert await world.limiter.time_until_available(USER, API, {"rpm": 10}) == 0
        found = await world.limiter.check_availability(USER, API, {"rpm": 10})
        assert found.available
        assert bool(found) is True

    async def test_what_never_fits_waits_for_ever(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 10))
        assert await world.limiter.time_until_available(USER, API, {"rpm": 11}) == math.inf

    async def test_the_http_header_is_rounded_up_to_whole_seconds(self, world: World) -> None:
        await world.configure(Limit.custom("x", 10, 10, 7))  # one token in 0.7 s
        await world.take(x=10)
        assert (await world.refusal(x=1)).retry_after_header == "1"
        assert (await world.refusal(x=2)).retry_after_header == "2"


def _scarce(chance: random.Random) -> tuple[list[Limit], int, int]:
    """Return a limit, an amount to take from it, and an amount that does not fit after that."""
    capacity = chance.randint(1, 5000)
    limit = Limit.custom("x", capacity, chance.randint(1, 5000), chance.choice(PERIODS))
    spent = chance.randint(1, capacity)
    return [limit], spent, chance.randint(capacity - spent + 1, capacity)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

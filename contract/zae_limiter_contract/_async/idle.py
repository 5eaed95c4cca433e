"""A bucket that was idle holds at most its capacity."""

from __future__ import annotations

import math

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import World

DAY = 86_400
PAUSES = [1, 2, 3, 60, DAY, 30 * 366 * DAY]  # seconds
FIVE_A_SECOND = Limit.per_second("rps", 5, burst=10)


class IdleContract(Contract):
    """Bursts come after idle times."""

    async def test_a_new_bucket_holds_exactly_its_capacity(self, world: World) -> None:
        await world.configure(FIVE_A_SECOND)
        for _ in range(10):
            await world.take(rps=1)
        await world.refusal(rps=1)

    @for_each("seconds", PAUSES)
    async def test_an_emptied_bucket_regains_what_accrued_and_never_more_than_its_capacity(
        self, world: World, seconds: int
    ) -> None:
        await world.configure(FIVE_A_SECOND)
        user = f"user-{seconds}"
        await world.take(user, rps=10)
        world.clock.advance(seconds=seconds)
        for _ in range(min(10, 5 * seconds)):
            await world.take(user, rps=1)
        await world.refusal(user, rps=1)

    @for_each("seconds", PAUSES)
    async def test_a_touched_bucket_grants_one_capacity_after_a_pause(
        self, world: World, seconds: int
    ) -> None:
        await world.configure(FIVE_A_SECOND)
        user = f"user-{seconds}"
        await world.take(user, rps=1)
        world.clock.advance(seconds=seconds)
        await world.take(user, rps=10)
        await world.refusal(user, rps=1)

    @for_each("seconds", PAUSES)
    async def test_a_burst_after_a_pause_in_single_steps_never_exceeds_the_capacity(
        self, world: World, seconds: int
    ) -> None:
        await world.configure(FIVE_A_SECOND)
        user = f"user-{seconds}"
        await world.take(user, rps=5)
        world.clock.advance(seconds=seconds)
        grants = [await world.granted(user, rps=1) for _ in range(25)]
        assert grants == [True] * 10 + [False] * 15

    async def test_after_a_pause_more_than_the_capacity_still_does_not_fit(
        self, world: World
    ) -> None:
        await world.configure(FIVE_A_SECOND)
        await world.take(rps=1)
        world.clock.advance(days=1)
        assert (await world.refusal(rps=11)).retry_after_seconds == math.inf

    async def test_every_pause_of_many_starts_from_the_capacity_again(self, world: World) -> None:
        await world.configure(FIVE_A_SECOND)
        for _ in range(10):
            await world.take(rps=10)
            await world.refusal(rps=1)
            world.clock.advance(days=400)

    async def test_the_level_shown_is_cut_at_the_capacity(self, world: World) -> None:
        await world.configure(FIVE_A_SECOND)
        await world.take(rps=10)
        world.clock.advance(ms=1900)
        assert await world.level("rps") == 9500
        world.clock.advance(days=7)
        assert await world.level("rps") == 10_000
        assert await world.limiter.available("user-1", "api") == {"rps": 10}

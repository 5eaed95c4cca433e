"""Clocks that go back, or differ from client to client."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from fractions import Fraction

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, World

ONE_A_SECOND = Limit.per_second("rps", 1, burst=10)


class SkewContract(Contract):
    """An earlier stamp never creates a token."""

    async def test_a_clock_that_goes_back_and_forth_brings_nothing(self, world: World) -> None:
        await world.configure(ONE_A_SECOND)
        await world.take(rps=10)
        for _ in range(3):
            world.clock.advance(hours=-1)
            await world.refusal(rps=1)
            world.clock.advance(hours=1)
            await world.refusal(rps=1)
        world.clock.advance(seconds=1)
        await world.take(rps=1)
        await world.refusal(rps=1)

    async def test_a_refusal_at_an_earlier_stamp_names_the_full_wait(self, world: World) -> None:
        await world.configure(ONE_A_SECOND)
        await world.take(rps=10)
        world.clock.advance(seconds=-5)
        assert (await world.refusal(rps=1)).retry_after_seconds == 6

    async def test_a_bucket_that_was_full_later_is_not_full_earlier(self, world: World) -> None:
        await world.configure(ONE_A_SECOND)
        await world.take(rps=1)  # leaves 9 at this stamp
        world.clock.advance(seconds=-4)
        assert await world.tokens("rps") == 5
        await world.take(rps=5)
        await world.refusal(rps=1)
        world.clock.advance(seconds=4)
        assert await world.tokens("rps") == 4

    @for_each("year", [1970, 2019, 2020, 2106, 2500])
    async def test_the_arithmetic_is_the_same_in_any_year(self, world: World, year: int) -> None:
        await world.configure(ONE_A_SECOND)
        world.clock.set(round(1000 * datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()))
        user = f"user-{year}"
        await world.take(user, rps=10)
        assert (await world.refusal(user, rps=2)).retry_after_seconds == 2
        world.clock.advance(ms=1999)
        await world.refusal(user, rps=2)
        world.clock.advance(ms=1)
        await world.take(user, rps=2)
        await world.refusal(user, rps=1)

    async def test_a_bucket_first_touched_at_an_early_stamp_is_full_once(
        self, world: World
    ) -> None:
        await world.configure(ONE_A_SECOND)
        world.clock.advance(days=-365)
        await world.take(rps=10)
        world.clock.advance(days=365)
        await world.take(rps=10)
        await world.refusal(rps=1)

    async def test_resets_and_top_ups_at_an_early_stamp_do_not_overfill(self, world: World) -> None:
        await world.configure(ONE_A_SECOND)
        await world.take(rps=10)
        world.clock.advance(seconds=-60)
        await world.repo.reset_bucket(USER, API)
        await world.repo.top_up(USER, API, {"rps": 10})
        world.clock.advance(seconds=60)
        assert await world.tokens("rps") == 10
        await world.take(rps=10)
        await world.refusal(rps=1)

    async def test_what_a_top_up_would_have_run_over_is_gone_at_an_earlier_stamp_too(
        self, world: World
    ) -> None:
        await world.configure(ONE_A_SECOND)
        await world.take(rps=5)
        await world.repo.top_up(USER, API, {"rps": 1000})
        world.clock.advance(seconds=-4)
        assert await world.tokens("rps") == 6

    async def test_what_a_smaller_capacity_has_cut_is_gone_at_an_earlier_stamp_too(
        self, world: World
    ) -> None:
        await world.configure(Limit.per_second("rps", 1, burst=100))
        await world.take(rps=0)
        await world.configure(ONE_A_SECOND)
        await world.take(rps=0)
        world.clock.advance(seconds=-4)
        assert await world.tokens("rps") == 6

    async def test_clients_with_different_clocks_share_capacity_and_accrual(
        self, world: World
    ) -> None:
        await world.configure(ONE_A_SECOND)
        chance, start, latest, granted = random.Random(5), world.clock(), 0, 0
        for step in range(400):
            skew = chance.randint(-3000, 3000)
            latest = max(latest, 100 * step + skew)
            world.clock.set(start + 100 * step + skew)
            granted += await world.granted(rps=1)
        assert granted <= 10 + Fraction(latest, 1000)
        assert granted >= 30  # 40 s have passed, and the clocks lag by no more than 3 s

"""Over time, a limit grants its whole rate and nothing beyond."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import USER, World
from zae_limiter_contract.ideal import IdealBucket

DAY = 86_400
FAST, SLOW = Limit.per_second("rps", 1), Limit.per_day("rpd", 10)


class RateContract(Contract):
    """No token is lost or created."""

    async def test_a_slow_limit_beside_a_busy_one_regains_all_of_its_day(
        self, world: World
    ) -> None:
        await _busy_day(world, step_seconds=864)

    @pytest.mark.slow
    async def test_a_slow_limit_beside_one_used_every_second_regains_all_of_its_day(
        self, world: World
    ) -> None:
        await _busy_day(world, step_seconds=1)

    async def test_a_greedy_client_that_waits_gets_its_full_rate(self, world: World) -> None:
        await world.configure(Limit.per_second("rps", 7))
        start, granted = world.clock(), 0
        while world.clock() - start < 20_000:
            try:
                await world.take(rps=1)
                granted += 1
            except RateLimitExceeded as refusal:
                world.clock.advance(ms=round(1000 * refusal.retry_after_seconds))
        assert 0.99 * 7 * 20 <= granted <= 7 + 7 * 20

    async def test_a_greedy_client_that_polls_gets_its_full_rate_and_no_more(
        self, world: World
    ) -> None:
        await world.configure(Limit.per_second("rps", 3))
        chance, start, granted = random.Random(3), world.clock(), 0
        for _ in range(200):
            granted += await world.granted(rps=1)
            world.clock.advance(ms=chance.randint(1, 300))
        accrued = 3 * Fraction(world.clock() - start, 1000)
        assert 0.99 * (3 + accrued) - 1 <= granted <= 3 + accrued

    @pytest.mark.parametrize(
        ("seed", "steps"),
        [(0, 60), *(pytest.param(seed, 150, marks=pytest.mark.slow) for seed in range(3))],
    )
    async def test_a_random_history_agrees_with_exact_arithmetic_to_a_millitoken(
        self, world: World, seed: int, steps: int
    ) -> None:
        chance, above = random.Random(seed), Fraction(world.spec.precision_milli, 1000)
        capacity = chance.randint(1, 50)
        below = above + capacity * world.spec.may_lag
        limit = Limit.custom("x", capacity, chance.randint(1, 50), chance.choice([1, 7, 60, 3600]))
        await world.configure(limit)
        ideal = IdealBucket(limit, world.clock())
        for _ in range(steps):
            world.clock.advance(ms=chance.choice([0, 1, chance.randrange(3000), 10**7]))
            now = world.clock()
            amount = chance.randint(0, capacity)
            adjustment = chance.choice([0, 0, 0, chance.randint(-amount, 2 * capacity)])
            try:
                async with world.acquire(x=amount) as lease:
                    assert ideal.level(now) > amount - above
                    await lease.adjust(x=adjustment)
                ideal.take(amount, now)
                ideal.take(adjustment, now)
            except RateLimitExceeded:
                assert ideal.level(now) < amount + below
            if await world.repo.get_bucket(USER, "api", "x") is not None:
                level = Fraction(await world.level("x"), 1000)
                assert -below < level - ideal.level(now) < above


async def _busy_day(world: World, step_seconds: int) -> None:
    """Use the fast limit all day, and read the slow one at noon and at the end."""
    await world.configure(FAST, SLOW)
    start = world.clock()
    await world.take(rpd=10)
    for second in range(0, DAY, step_seconds):
        world.clock.set(start + 1000 * second)
        await world.take(rps=1)
        if second == DAY // 2:
            assert await world.level("rpd") == 5000
    world.clock.set(start + 1000 * DAY - 1)
    await world.refusal(rpd=10)
    world.clock.advance(ms=1)
    await world.take(rpd=10)
    await world.refusal(rpd=1)

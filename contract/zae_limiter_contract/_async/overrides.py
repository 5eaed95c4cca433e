"""``limits=`` of a call apply to that call, and leave the balances of stored limits alone."""

from __future__ import annotations

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

TEN, FIVE = [Limit.per_minute("rpm", 10)], [Limit.per_minute("rpm", 5)]
HUNDRED = [Limit.custom("rpm", 100, 60, 60)]


class OverrideContract(Contract):
    """Limits of calls are used without stored limits, and beside stored limits."""

    async def test_limits_of_the_call_need_no_configuration(self, world: World) -> None:
        await world.take(limits=TEN, rpm=10)
        await world.refusal(limits=TEN, rpm=1)

    async def test_a_larger_capacity_keeps_the_level_and_brings_its_own_rate(
        self, world: World
    ) -> None:
        await world.take(limits=TEN, rpm=4)
        await world.refusal(limits=HUNDRED, rpm=7)
        await world.take(limits=HUNDRED, rpm=1)
        assert await world.tokens() == 5
        world.clock.advance(seconds=60)
        assert await world.tokens() == 65
        await world.take(limits=HUNDRED, rpm=65)
        await world.refusal(limits=HUNDRED, rpm=1)

    async def test_a_smaller_capacity_applies_to_the_bucket_that_exists(self, world: World) -> None:
        await world.take(limits=HUNDRED, rpm=1)
        await world.take(limits=FIVE, rpm=5)
        await world.refusal(limits=FIVE, rpm=1)

    async def test_switching_back_and_forth_mints_nothing(self, world: World) -> None:
        granted = 0
        for _ in range(30):
            granted += await world.granted(limits=TEN, rpm=1)
            granted += await world.granted(limits=HUNDRED, rpm=1)
        assert granted == 10

    async def test_beside_stored_limits_the_ones_of_the_call_have_their_own_balance(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(rpm=3)
        await world.take(limits=FIVE, rpm=5)
        await world.refusal(limits=FIVE, rpm=1)
        assert await world.tokens() == 7
        await world.take(rpm=7)
        await world.refusal(rpm=1)

    async def test_limits_of_the_call_that_come_first_have_their_own_balance(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(limits=HUNDRED, rpm=100)
        assert await world.limiter.available(USER, API) == {"rpm": 10}
        await world.take(rpm=1)
        assert await world.limiter.available(USER, API) == {"rpm": 9}
        assert await world.limiter.available(USER, API, HUNDRED) == {"rpm": 0}
        await world.refusal(limits=HUNDRED, rpm=1)

    async def test_beside_stored_limits_switching_back_and_forth_mints_nothing(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        stored = called = 0
        for _ in range(20):
            stored += await world.granted(rpm=1)
            called += await world.granted(limits=FIVE, rpm=1)
        assert (stored, called) == (10, 5)

    async def test_the_same_limits_as_the_stored_ones_share_their_balance(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(limits=TEN, rpm=4)
        await world.take(rpm=4)
        await world.refusal(limits=TEN, rpm=3)

    async def test_a_limit_that_is_not_stored_is_charged_and_leaves_the_stored_ones_alone(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(rpm=4)
        extra = [Limit.per_minute("images", 2)]
        await world.take(limits=extra, images=2)
        await world.refusal(limits=extra, images=1)
        assert await world.tokens() == 6

    async def test_a_failed_block_gives_back_to_the_balance_it_took_from(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(rpm=6)
        with failing():
            async with world.acquire(limits=FIVE, rpm=5):
                raise Failure
        assert await world.tokens() == 4
        await world.take(limits=FIVE, rpm=5)

    async def test_an_adjustment_goes_to_the_balance_that_was_charged(self, world: World) -> None:
        await world.configure(*TEN)
        await world.take(rpm=6)
        async with world.acquire(limits=FIVE, rpm=1) as lease:
            await lease.adjust(rpm=9)
        assert await world.tokens() == 4
        refusal = await world.refusal(limits=FIVE, rpm=1)
        assert refusal.statuses[0].available == -5

    async def test_the_balance_of_a_call_refills_at_its_own_rate(self, world: World) -> None:
        await world.configure(*TEN)
        await world.take(limits=FIVE, rpm=5)
        world.clock.advance(seconds=12)
        await world.take(limits=FIVE, rpm=1)
        await world.refusal(limits=FIVE, rpm=1)
        world.clock.advance(days=2)
        await world.take(limits=FIVE, rpm=5)
        await world.refusal(limits=FIVE, rpm=1)

    async def test_a_balance_of_the_call_that_is_not_full_yet_is_not_dropped(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(rpm=1)
        await world.take(limits=HUNDRED, rpm=100)
        world.clock.advance(seconds=30)
        await world.take(limits=[Limit.per_minute("rpm", 77)], rpm=1)
        assert await world.limiter.available(USER, API, HUNDRED) == {"rpm": 30}

    async def test_a_debt_survives_although_the_balance_of_the_call_was_dropped(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(rpm=1)
        async with world.acquire(limits=HUNDRED, rpm=5) as lease:
            world.clock.advance(hours=1)
            await world.take(limits=[Limit.per_minute("rpm", 50)], rpm=1)
            await lease.adjust(rpm=150)
        assert await world.limiter.available(USER, API, HUNDRED) == {"rpm": -50}

    @pytest.mark.parametrize("beside", [True, False], ids=["beside-stored", "calls-only"])
    async def test_many_different_limits_of_calls_do_not_pile_up_in_a_bucket(
        self, world: World, beside: bool
    ) -> None:
        await world.configure(*TEN)
        if beside:
            await world.take(rpm=1)
        for number in range(20):
            await world.take(limits=[Limit.per_minute("rpm", 100 + number)], rpm=1)
            world.clock.advance(minutes=2)
        assert len(await world.repo.get_buckets(USER, API)) < 5

    async def test_configuration_that_comes_later_takes_the_balance_over(
        self, world: World
    ) -> None:
        await world.take(limits=TEN, rpm=7)
        await world.configure(*HUNDRED)
        assert await world.limiter.available(USER, API) == {"rpm": 3}
        await world.take(rpm=3)
        await world.refusal(rpm=1)

    async def test_what_was_consumed_under_limits_of_a_call_stays_counted_when_they_are_dropped(
        self, world: World
    ) -> None:
        await world.configure(*TEN)
        await world.take(limits=HUNDRED, rpm=7)
        world.clock.advance(minutes=5)
        await world.take(rpm=1)
        assert await world.spent() == 8

    @pytest.mark.parametrize("stored", [True, False])
    async def test_use_stored_limits_lets_stored_ones_win(self, world: World, stored: bool) -> None:
        if stored:
            await world.configure(*TEN)
        acquire = world.limiter.acquire(USER, API, {"rpm": 5}, FIVE, use_stored_limits=True)
        async with acquire:
            pass
        assert await world.tokens() == (5 if stored else 0)

    async def test_questions_take_limits_of_the_call_as_well(self, world: World) -> None:
        await world.configure(*TEN)
        await world.take(limits=FIVE, rpm=4)
        assert await world.limiter.available(USER, API, FIVE) == {"rpm": 1}
        assert await world.limiter.available(USER, API) == {"rpm": 10}
        wait = await world.limiter.time_until_available(USER, API, {"rpm": 2}, FIVE)
        assert wait == 12

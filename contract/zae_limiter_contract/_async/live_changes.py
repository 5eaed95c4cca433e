"""Limits change while buckets are in use. The level stays, and no token is created or lost."""

from __future__ import annotations

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

TEN, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
TPM = Limit.per_minute("tpm", 100)


class LiveChangeContract(Contract):
    """The capacity, the rate and the number of limits change."""

    async def test_a_larger_capacity_keeps_the_level_and_fills_up_over_time(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        await world.take(rpm=4)
        await world.configure(TWENTY)
        assert await world.limiter.available(USER, API) == {"rpm": 6}
        await world.take(rpm=6)
        await world.refusal(rpm=1)
        world.clock.advance(seconds=60)
        await world.take(rpm=20)

    async def test_a_smaller_capacity_cuts_the_level(self, world: World) -> None:
        await world.configure(TWENTY)
        await world.take(rpm=4)
        await world.configure(TEN)
        await world.take(rpm=10)
        await world.refusal(rpm=1)

    async def test_a_smaller_capacity_keeps_a_level_that_fits(self, world: World) -> None:
        await world.configure(TWENTY)
        await world.take(rpm=17)
        await world.configure(TEN)
        await world.take(rpm=3)
        await world.refusal(rpm=1)

    async def test_raising_and_lowering_again_and_again_mints_nothing(self, world: World) -> None:
        await world.configure(TEN)
        granted = 0
        for _ in range(10):
            granted += await world.granted(rpm=1)
            await world.configure(TWENTY)
            granted += await world.granted(rpm=1)
            await world.configure(TEN)
        assert granted == 10

    async def test_lowering_and_raising_again_does_not_bring_back_what_was_cut(
        self, world: World
    ) -> None:
        await world.configure(TWENTY)
        await world.take(rpm=0)
        await world.configure(TEN)
        await world.take(rpm=0)
        await world.configure(TWENTY)
        assert await world.limiter.available(USER, API) == {"rpm": 10}

    async def test_a_new_rate_counts_from_the_change_on(self, world: World) -> None:
        await world.configure(Limit.custom("rpm", 100, 1, 1))
        await world.take(rpm=100)
        world.clock.advance(seconds=10)
        await world.configure(Limit.custom("rpm", 100, 5, 1))
        await world.take(rpm=10)
        await world.refusal(rpm=1)
        world.clock.advance(seconds=10)
        await world.take(rpm=50)
        await world.refusal(rpm=1)

    async def test_a_change_of_the_rate_years_after_the_epoch_moves_no_token(
        self, world: World
    ) -> None:
        await world.configure(Limit.per_second("rpm", 1000))
        await world.take(rpm=400)
        await world.configure(Limit.custom("rpm", 1000, 1, 86_400))
        assert await world.limiter.available(USER, API) == {"rpm": 600}
        await world.configure(Limit.per_second("rpm", 1000))
        assert await world.limiter.available(USER, API) == {"rpm": 600}

    async def test_a_debt_survives_a_change(self, world: World) -> None:
        await world.configure(TEN)
        await world.owe(rpm=15)
        await world.configure(TWENTY)
        assert await world.limiter.available(USER, API) == {"rpm": -5}
        assert (await world.refusal(rpm=1)).retry_after_seconds == 18

    async def test_a_limit_that_is_added_starts_full(self, world: World) -> None:
        await world.configure(TEN)
        await world.take(rpm=4)
        await world.configure(TEN, TPM)
        await world.take(rpm=1, tpm=100)
        await world.refusal(tpm=1)
        assert await world.tokens("rpm") == 5

    async def test_a_limit_that_is_removed_is_neither_checked_nor_reported(
        self, world: World
    ) -> None:
        await world.configure(TEN, TPM)
        await world.owe(rpm=25)
        await world.configure(TPM)
        await world.take(tpm=1)
        refusal = await world.refusal(tpm=100)
        assert [each.limit_name for each in refusal.statuses] == ["tpm"]
        assert await world.limiter.available(USER, API) == {"tpm": 99}

    async def test_removing_a_limit_and_adding_it_again_refills_nothing(self, world: World) -> None:
        await world.configure(TEN, TPM)
        await world.take(rpm=10)
        await world.configure(TPM)
        await world.take(tpm=1)
        await world.configure(TEN, TPM)
        await world.refusal(rpm=1)
        world.clock.advance(seconds=6)
        await world.take(rpm=1)

    async def test_deleting_the_limits_of_an_entity_keeps_its_level(self, world: World) -> None:
        await world.configure(TWENTY)
        await world.repo.set_limits(USER, [TEN])
        await world.take(rpm=7)
        await world.repo.delete_limits(USER)
        await world.take(rpm=3)
        await world.refusal(rpm=1)

    async def test_a_lease_that_was_open_during_the_change_settles_in_full(
        self, world: World
    ) -> None:
        await world.configure(TEN)
        async with world.acquire(rpm=2) as lease:
            await world.configure(TWENTY)
            await world.take(rpm=1)
            await lease.adjust(rpm=3)
        assert await world.tokens() == 4

    async def test_a_lease_can_adjust_a_limit_that_was_removed_meanwhile(
        self, world: World
    ) -> None:
        await world.configure(TEN, TPM)
        async with world.acquire(rpm=2, tpm=10) as lease:
            await world.configure(TEN)
            await world.take(rpm=1)
            await lease.adjust(tpm=20)
        await world.configure(TEN, TPM)
        assert await world.limiter.available(USER, API) == {"rpm": 7, "tpm": 70}

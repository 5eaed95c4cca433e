"""Debts and credits: ``adjust`` is never rejected, and every token of it counts."""

from __future__ import annotations

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 60)  # one token a second


class DebtContract(Contract):
    """The final cost of a lease."""

    async def test_an_adjustment_beyond_the_level_leaves_a_debt_to_be_repaid(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=50) as lease:
            await lease.adjust(rpm=30)
        assert await world.level() == -20_000
        assert await world.limiter.available(USER, API) == {"rpm": -20}
        assert (await world.refusal(rpm=1)).retry_after_seconds == 21
        world.clock.advance(ms=20_999)
        await world.refusal(rpm=1)
        world.clock.advance(ms=1)
        await world.take(rpm=1)

    async def test_a_debt_may_exceed_the_capacity_many_times(self, world: World) -> None:
        await world.configure(RPM)
        await world.owe(rpm=1060)
        assert await world.level() == -1_000_000
        assert (await world.refusal(rpm=60)).retry_after_seconds == 1060
        world.clock.advance(seconds=1060)
        await world.take(rpm=60)

    async def test_a_debt_is_not_swallowed_by_what_ran_over_while_idle(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as lease:
            world.clock.advance(days=365)
            await lease.adjust(rpm=80)
        assert await world.level() == -20_000

    async def test_a_debt_of_a_bucket_that_was_idle_before_the_lease_counts_in_full(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        await world.take(rpm=1)
        world.clock.advance(days=365)
        await world.owe(rpm=80)
        assert await world.level() == -20_000

    async def test_debts_of_several_leases_add_up(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as first, world.acquire(rpm=10) as second:
            await first.adjust(rpm=40)
            await second.adjust(rpm=50)
        assert await world.level() == -50_000

    async def test_adjustments_of_one_lease_add_up_and_are_written_at_its_end(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as lease:
            await lease.adjust(rpm=5)
            await lease.adjust(rpm=-3)
            assert await world.level() == 50_000
        assert await world.level() == 48_000

    async def test_an_adjustment_charges_a_limit_that_the_acquire_did_not_name(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=1) as lease:
            await lease.adjust(tpm=20)
            assert lease.consumed == {"rpm": 1, "tpm": 20}
        assert (await world.level("rpm"), await world.level("tpm")) == (59_000, 40_000)

    async def test_a_debt_in_a_limit_that_is_not_asked_for_blocks_until_it_is_repaid(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        await world.owe(tpm=70)
        refusal = await world.refusal(rpm=1)
        (violation,) = refusal.violations
        assert (violation.limit_name, violation.requested) == ("tpm", 0)
        assert refusal.retry_after_seconds == 10
        assert await world.level("rpm") == 60_000
        world.clock.advance(ms=9999)
        await world.refusal(rpm=1)
        world.clock.advance(ms=1)
        await world.take(rpm=1)

    async def test_a_limit_at_exactly_zero_blocks_no_call_that_does_not_ask_for_it(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        await world.owe(tpm=60)
        await world.take(rpm=1)

    async def test_a_negative_adjustment_gives_back(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=10) as lease:
            await lease.adjust(rpm=-4)
            assert lease.consumed == {"rpm": 6}
        assert await world.level() == 54_000

    @pytest.mark.parametrize("wait_seconds", [0, 3600])
    async def test_a_credit_never_lifts_the_level_above_the_capacity(
        self, world: World, wait_seconds: int
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=50) as lease:
            world.clock.advance(seconds=wait_seconds)
            await lease.adjust(rpm=-50)
        assert await world.level() == 60_000
        await world.take(rpm=60)
        await world.refusal(rpm=1)

    async def test_a_credit_beyond_the_capacity_does_not_soften_a_later_debt(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=50) as lease:
            world.clock.advance(seconds=60)
            await lease.adjust(rpm=-50)
        await world.owe(rpm=60)
        assert await world.level() == 0

    async def test_a_credit_repays_a_debt(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=1) as lease:
            await world.owe(rpm=100)
            assert await world.level() == -41_000
            await lease.adjust(rpm=-1)
        assert await world.level() == -40_000

    async def test_an_adjustment_of_nothing_changes_nothing(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.adjust(rpm=0)
            await lease.adjust()
        assert await world.level() == 59_000

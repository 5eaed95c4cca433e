"""Limits change while buckets are in use. The level stays, and no token is created or lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from zae_limiter.admission.rebase import MAX_STORED
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import MAX_LIMITS, Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, World

TEN, TWENTY = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
TPM = Limit.per_minute("tpm", 100)


def amounts_of(name: str, amount: int) -> dict[str, Any]:
    """Return the amount of a limit whose name is made up, as keyword arguments."""
    return {name: amount}


def many(prefix: str) -> list[Limit]:
    """Return as many limits as a level may have."""
    return [Limit.per_minute(f"{prefix}-{number}", 10) for number in range(MAX_LIMITS)]


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

    async def test_a_renamed_limit_comes_back_with_its_level(self, world: World) -> None:
        await world.configure(TEN)
        await world.take(rpm=7)
        for number in range(5):
            await world.configure(Limit.per_minute(f"other-{number}", 10))
            await world.take(**amounts_of(f"other-{number}", 1))
        world.clock.advance(seconds=6)
        await world.configure(TEN)
        assert await world.limiter.available(USER, API) == {"rpm": 4}

    async def test_renaming_limits_again_and_again_stops_no_acquire(self, world: World) -> None:
        """A limit that is not in force any more leaves the bucket once it is full."""
        for number in range(100):
            await world.configure(Limit.per_minute(f"limit-{number}", 10))
            await world.take(**amounts_of(f"limit-{number}", 10))
            await world.refusal(**amounts_of(f"limit-{number}", 1))
            world.clock.advance(minutes=3)

    async def test_limits_without_room_in_the_bucket_are_refused_when_they_are_set(
        self, world: World
    ) -> None:
        """All earlier limits are still needed, since none of them is full."""
        names = [f"limit-{number}" for number in range(MAX_STORED)]
        for name in names:
            await world.repo.set_limits(USER, [Limit.per_day(name, 10)], API)
            await world.take(**amounts_of(name, 5))
        with pytest.raises(ValidationError, match=str(MAX_STORED)):
            await world.repo.set_limits(USER, [TEN], API)
        await world.take(**amounts_of(names[-1], 5))  # the limits in force are as before
        await world.refusal(**amounts_of(names[-1], 1))
        world.clock.advance(hours=25)
        await world.take(**amounts_of(names[-1], 1))
        await world.repo.set_limits(USER, [TEN], API)
        await world.take(rpm=10)

    async def test_defaults_without_room_beside_those_in_force_are_refused_when_they_are_set(
        self, world: World
    ) -> None:
        """Buckets in use would hold both, and there are too many buckets to look at."""
        repo = world.repo
        old, new = many("old"), many("new")
        levels: list[Callable[..., Awaitable[bool]]] = [
            repo.set_system_defaults,
            partial(repo.set_resource_defaults, API),
            partial(repo.set_limits, USER),
        ]
        for put in levels:
            await put(old)
            await world.take(**amounts_of("old-0", 10))
            with pytest.raises(ValidationError, match="replace some of them now"):
                await put(new)
            await world.refusal(**amounts_of("old-0", 1))  # the limits in force are as before
            assert not await put(new, if_missing=True)
            assert await put([*old[:20], *new[:12]])  # 44 different ones
            await world.take(**amounts_of("new-0", 10))
            await world.refusal(**amounts_of("new-0", 1))
            world.clock.advance(hours=2)
            await put(old)
        await repo.delete_limits(USER)
        await repo.delete_resource_defaults(API)
        with pytest.raises(ValidationError, match="replace some of them now"):
            await repo.set_resource_defaults(API, new)  # those of the system are in force

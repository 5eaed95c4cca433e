"""A lease settles its grant, even if limits or entities change meanwhile."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

RPM, TPM = Limit.custom("rpm", 10, 1, 3600), Limit.custom("tpm", 1000, 1, 3600)
MANY, FEW = Limit.per_minute("rpm", 200), Limit.per_minute("tpm", 5)
CHILD, PARENT = "child", "parent"


class ChangedLeaseContract(Contract):
    """Limits and entities change while a block runs."""

    @pytest.fixture
    async def configured(self, world: World) -> World:
        await world.configure(RPM, TPM)
        return world

    @pytest.fixture
    async def limited_child(self, world: World) -> World:
        """``child`` has limits and cascades to ``parent``, which has none yet."""
        await world.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        await world.repo.set_limits(CHILD, [MANY], API)
        return world

    # --- a consume that is refused under other limits

    async def test_a_refused_consume_under_fewer_limits_leaves_the_lease_as_it_was(
        self, configured: World
    ) -> None:
        with failing():
            async with configured.acquire(rpm=5, tpm=1) as lease:
                await configured.configure(RPM)
                with pytest.raises(RateLimitExceeded):
                    await lease.consume(rpm=50)
                raise Failure
        await configured.configure(RPM, TPM)
        assert await _available(configured) == {"rpm": 10, "tpm": 1000}

    async def test_a_refused_consume_under_reordered_limits_gives_back_to_the_right_ones(
        self, configured: World
    ) -> None:
        with suppress(RateLimitExceeded):
            async with configured.acquire(rpm=5, tpm=1) as lease:
                await configured.configure(TPM)
                await configured.configure(TPM, RPM)
                await lease.consume(rpm=50)
        assert await _available(configured) == {"rpm": 10, "tpm": 1000}

    async def test_an_adjustment_is_written_after_a_new_limit_has_refused_a_consume(
        self, world: World
    ) -> None:
        await world.repo.set_limits(USER, [MANY], API)
        async with world.acquire(rpm=10) as lease:
            await world.repo.set_limits(USER, [MANY, FEW], API)
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=1, tpm=6)
            await lease.adjust(rpm=20)
        assert await _available(world) == {"rpm": 170, "tpm": 5}
        assert world.repo.lost_settlements == 0

    async def test_a_failed_block_gives_back_what_it_took_although_a_new_limit_refused_it(
        self, world: World
    ) -> None:
        await world.repo.set_limits(USER, [MANY], API)
        await world.take(rpm=100)
        with suppress(RateLimitExceeded):
            async with world.acquire(rpm=10) as lease:
                await world.repo.set_limits(USER, [MANY, FEW], API)
                await lease.consume(rpm=1, tpm=6)
        assert await _available(world) == {"rpm": 100, "tpm": 5}

    # --- limits that are removed, raised or replaced

    async def test_tokens_go_back_where_they_were_taken_although_a_limit_was_removed(
        self, configured: World
    ) -> None:
        with failing():
            async with configured.acquire(rpm=5, tpm=7) as lease:
                await configured.configure(RPM)
                await lease.consume(rpm=1)
                raise Failure
        await configured.configure(RPM, TPM)
        assert await _available(configured) == {"rpm": 10, "tpm": 1000}

    async def test_a_late_debt_does_not_bring_old_limits_back(self, configured: World) -> None:
        async with configured.acquire(rpm=1) as lease:
            await configured.repo.delete_entity(USER)
            await configured.configure(Limit.custom("rpm", 5000, 1, 3600))
            await configured.take(rpm=1)
            await lease.adjust(tpm=3)
        assert await _available(configured) == {"rpm": 4999}

    async def test_the_debt_of_a_call_with_its_own_limits_is_kept_although_the_bucket_is_gone(
        self, configured: World
    ) -> None:
        own = [Limit.custom("rpm", 20, 1, 3600)]
        await configured.take(rpm=1)
        async with configured.acquire(limits=own, rpm=1) as lease:
            await configured.repo.delete_entity(USER)
            await lease.adjust(rpm=5)
        assert await configured.limiter.available(USER, API, own) == {"rpm": 15}

    async def test_after_limits_were_raised_a_larger_request_fits_after_the_stated_time(
        self, configured: World
    ) -> None:
        await configured.take(rpm=10)
        await configured.configure(Limit.custom("rpm", 100, 10, 10))
        assert (await configured.refusal(rpm=50)).retry_after_seconds == 50
        configured.clock.advance(seconds=50)
        await configured.take(rpm=50)

    # --- a parent that gets limits, loses them, or is left by its child

    async def test_a_parent_gets_its_tokens_back_although_the_child_has_left_it(
        self, configured: World
    ) -> None:
        await configured.repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
        with failing():
            async with configured.acquire(CHILD, rpm=5) as lease:
                await configured.repo.delete_entity(CHILD)
                await lease.consume(rpm=1)
                raise Failure
        for entity_id in (CHILD, PARENT):
            assert (await configured.limiter.available(entity_id, API))["rpm"] == 10

    async def test_a_parent_that_gets_limits_is_credited_only_what_a_later_consume_charged(
        self, limited_child: World
    ) -> None:
        await limited_child.take(CHILD, rpm=100)
        with failing():
            async with limited_child.acquire(CHILD, rpm=50) as lease:
                await limited_child.repo.set_limits(PARENT, [MANY], API)
                await limited_child.take(PARENT, rpm=80)
                await lease.consume(rpm=1)
                assert await _both(limited_child) == (49, 119)
                raise Failure
        assert await _both(limited_child) == (100, 120)

    async def test_a_parent_whose_limits_are_deleted_gets_its_charge_back(
        self, limited_child: World
    ) -> None:
        await limited_child.repo.set_limits(PARENT, [MANY], API)
        await limited_child.take(PARENT, rpm=80)
        with failing():
            async with limited_child.acquire(CHILD, rpm=50) as lease:
                await limited_child.repo.delete_limits(PARENT, API)
                await lease.consume(rpm=1)
                raise Failure
        assert await _both(limited_child) == (200, 120)

    async def test_a_release_goes_back_to_the_buckets_that_were_charged(
        self, limited_child: World
    ) -> None:
        await limited_child.repo.set_limits(PARENT, [MANY], API)
        await limited_child.take(PARENT, rpm=80)
        async with limited_child.acquire(CHILD, rpm=50) as lease:
            await limited_child.repo.delete_limits(PARENT, API)
            await lease.consume(rpm=5)  # from the child alone
            await lease.release(rpm=15)  # five to the child alone, ten to both
        assert await _both(limited_child) == (160, 80)


async def _available(world: World) -> dict[str, int | Decimal]:
    return await world.limiter.available(USER, API)


async def _both(world: World) -> tuple[float, float]:
    return await world.tokens("rpm", CHILD), await world.tokens("rpm", PARENT)

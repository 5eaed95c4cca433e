"""A block that fails costs nothing."""

from __future__ import annotations

import pytest

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import Failure, World, failing

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)


class Stop(BaseException):
    """An error that is not an Exception, like KeyboardInterrupt."""


class RollbackContract(Contract):
    """A block may fail with any exception, at any moment."""

    @for_each("error", [ValueError("no"), RateLimitExceeded([]), Stop()])
    async def test_an_exception_gives_everything_back_and_comes_out_unchanged(
        self, world: World, error: BaseException
    ) -> None:
        await world.configure(RPM, TPM)

        async def fail() -> None:
            async with world.acquire(rpm=3, tpm=40) as lease:
                await lease.consume(tpm=10)
                raise error

        with pytest.raises(type(error)) as caught:
            await fail()
        assert caught.value is error
        assert (await world.level("rpm"), await world.level("tpm")) == (10_000, 100_000)

    async def test_an_exception_drops_pending_adjustments(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=3) as lease:
                await lease.adjust(rpm=100)
                raise Failure
        assert await world.level() == 10_000

    async def test_what_others_took_meanwhile_stays_taken(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=3):
                await world.take(rpm=2)
                raise Failure
        assert await world.level() == 8000

    async def test_a_refund_after_a_pause_does_not_overfill(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=10):
                world.clock.advance(days=1)
                raise Failure
        await world.take(rpm=10)
        await world.refusal(rpm=1)

    async def test_a_refund_counts_even_while_the_bucket_is_in_debt(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=4):
                await world.owe(rpm=20)
                raise Failure
        assert await world.level() == -10_000

    async def test_a_refusal_inside_the_block_gives_the_outer_lease_back(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        with pytest.raises(RateLimitExceeded):
            async with world.acquire(rpm=3):
                await world.take(rpm=8)
        assert await world.level() == 10_000

    async def test_nested_leases_are_given_back_one_by_one(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=3):
            with failing():
                async with world.acquire(rpm=2, tpm=5):
                    raise Failure
        assert (await world.level("rpm"), await world.level("tpm")) == (7000, 100_000)

    async def test_leaving_by_return_or_break_keeps_the_charge(self, world: World) -> None:
        await world.configure(RPM)

        async def early() -> None:
            async with world.acquire(rpm=1):
                return

        await early()
        while True:
            async with world.acquire(rpm=1):
                break
        assert await world.level() == 8000

    async def test_a_bad_call_inside_the_block_gives_the_lease_back_if_it_escapes(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        with pytest.raises(ValueError, match="unknown"):
            async with world.acquire(rpm=3) as lease:
                await lease.consume(unknown=1)
        assert await world.level() == 10_000

    async def test_a_refund_to_a_bucket_that_was_deleted_meanwhile_does_not_bring_it_back(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=3):
                await world.repo.delete_entity("user-1")
                raise Failure
        await world.take(rpm=10)
        await world.refusal(rpm=1)

    async def test_a_debt_of_a_bucket_that_was_deleted_meanwhile_is_owed_all_the_same(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=3) as lease:
            await world.repo.delete_entity("user-1")
            await lease.adjust(rpm=15)
        assert await world.level() == -5000

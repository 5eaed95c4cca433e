"""The operations of a lease, which work only while its block runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from zae_limiter.exceptions import LeaseExpiredError, RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 100)
DAILY, USD = Limit.quota("tokens", 10, per="day"), Limit.budget("usd", 10, per="month")


class LeaseContract(Contract):
    """``consume``, ``release``, ``consumed``, and the end of a lease."""

    async def test_a_mapping_may_stand_for_the_keywords(self, world: World) -> None:
        await world.configure(Limit.per_minute("gpt-4.tokens", 100), Limit.per_minute("rpm", 100))
        async with world.limiter.acquire(USER, API, {"gpt-4.tokens": 10}) as lease:
            await lease.consume({"gpt-4.tokens": 5}, rpm=2)
            await lease.release({"gpt-4.tokens": 3})
            await lease.adjust({"gpt-4.tokens": -1})
            assert lease.consumed == {"gpt-4.tokens": 11, "rpm": 2}
            for bad in ({"rpm": "1"}, 5, [("rpm", 1)]):
                with pytest.raises(ValidationError):
                    await lease.adjust(bad)  # type: ignore[arg-type]
            with pytest.raises(ValidationError, match="twice"):
                await lease.adjust({"rpm": 1}, rpm=1)
        assert await world.limiter.available(USER, API) == {"gpt-4.tokens": 89, "rpm": 98}

    async def test_consumed_shows_what_was_taken(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=2, tpm=30) as lease:
            assert lease.consumed == {"rpm": 2, "tpm": 30}

    async def test_changing_consumed_does_not_change_the_lease(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=2) as lease:
            lease.consumed["rpm"] = 0
            assert lease.consumed == {"rpm": 2}

    async def test_consume_takes_more_at_once(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=2) as lease:
            await lease.consume(rpm=3, tpm=10)
            assert await world.level("rpm") == 5000
            assert lease.consumed == {"rpm": 5, "tpm": 10}
        assert (await world.level("rpm"), await world.level("tpm")) == (5000, 90_000)

    async def test_a_refused_consume_takes_nothing_and_leaves_the_lease_usable(
        self, world: World
    ) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=2) as lease:
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=9, tpm=1)
            assert lease.consumed == {"rpm": 2}
            await lease.consume(rpm=1)
        assert (await world.level("rpm"), await world.level("tpm")) == (7000, 100_000)

    async def test_consume_is_refused_while_another_limit_is_in_debt(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=1) as lease:
            await world.owe(tpm=101)
            with pytest.raises(RateLimitExceeded):
                await lease.consume(rpm=1)

    async def test_release_gives_back_at_once(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=5) as lease:
            await lease.release(rpm=3)
            assert await world.level() == 8000
            assert lease.consumed == {"rpm": 2}
        assert await world.level() == 8000

    async def test_everything_can_be_released(self, world: World) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=5, tpm=50) as lease:
            await lease.consume(rpm=2)
            await lease.release(rpm=7, tpm=50)
        assert (await world.level("rpm"), await world.level("tpm")) == (10_000, 100_000)

    @for_each("amounts", [{"rpm": 6}, {"rpm": 1, "tpm": 1}])
    async def test_more_than_the_lease_holds_cannot_be_released(
        self, world: World, amounts: dict[str, int]
    ) -> None:
        await world.configure(RPM, TPM)
        async with world.acquire(rpm=5) as lease:
            with pytest.raises(ValidationError) as caught:
                await lease.release(**amounts)
            assert caught.value.field in ("release.rpm", "release.tpm")
            assert lease.consumed == {"rpm": 5}
            assert await world.level() == 5000
            await lease.release(rpm=5)

    @for_each("limit", [RPM, DAILY, USD])
    async def test_an_adjustment_gives_back_no_more_than_the_lease_holds(
        self, world: World, limit: Limit
    ) -> None:
        await world.configure(RPM, DAILY, USD)
        name, user = limit.name, f"user of {limit.name}"
        async with world.limiter.acquire(user, API, {name: 4}) as lease:
            await lease.adjust({name: 2})
            with pytest.raises(ValidationError) as caught:
                await lease.adjust({name: -7})
            assert caught.value.field == f"adjust.{name}"
            assert str(caught.value).endswith(
                "is more than this lease holds (6.00) (got Decimal('-7.00'))"
                if limit is USD
                else "is more than this lease holds (6) (got -7)"
            )
            assert lease.consumed == {name: 6}
            await lease.adjust({name: -6})
            with pytest.raises(ValidationError):
                await lease.adjust({name: -1})
        assert await world.limiter.available(user, API) == {"rpm": 10, "tokens": 10, "usd": 10}
        assert await world.spent(name, user) == 0

    @for_each("name", ["rpm", "tokens"])
    async def test_what_the_end_gives_back_is_not_released_as_well(
        self, world: World, name: str
    ) -> None:
        await world.configure(RPM, DAILY)
        for lowered in ("adjust", "settle"):
            user = f"{lowered} {name}"
            async with world.limiter.acquire(user, API, {name: 8}) as lease:
                await getattr(lease, lowered)({name: -5 if lowered == "adjust" else 3})
                await lease.release({name: 6})
                assert lease.consumed == {name: 0}
                with pytest.raises(ValidationError) as caught:
                    await lease.release({name: 3})
                assert caught.value.reason == "is more than this lease holds (2)"
            assert (await world.limiter.available(user, API))[name] == 10
            assert await world.spent(name, user) == 0

    async def test_a_limit_that_the_lease_does_not_hold_cannot_be_given_back(
        self, world: World
    ) -> None:
        await world.configure(RPM, DAILY)
        async with world.acquire(rpm=2) as lease:
            with pytest.raises(ValidationError):
                await lease.adjust(tokens=-1)
            with pytest.raises(ValidationError):
                await lease.adjust(rpm=-1, tokens=-1)
            assert lease.consumed == {"rpm": 2}
            await lease.settle(tokens=5, now=True)
            await lease.adjust(tokens=-5)
        assert await world.limiter.available(USER, API) == {"rpm": 8, "tokens": 10}

    @for_each("operation", ["acquire", "adjust", "consume", "release", "settle", "top up"])
    @for_each("amount", [10**9 + 1, 10**15, Decimal(10**9 + 1), "1000000000.5"])
    async def test_an_amount_of_money_is_at_most_that_of_the_largest_budget(
        self, world: World, operation: str, amount: Any
    ) -> None:
        at_most = "must be at most 1000000000"
        await world.configure(USD)
        async with world.acquire(usd=1) as lease:
            calls = {
                "acquire": world.take,
                "top up": lambda **amounts: world.repo.top_up(USER, API, amounts),
            }
            call = calls.get(operation) or getattr(lease, operation)
            with pytest.raises(ValidationError, match=at_most):
                await call(usd=amount)
            await lease.settle(usd=0)
        assert await world.limiter.available(USER, API) == {"usd": 10}

    async def test_what_was_released_is_not_given_back_again(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=5) as lease:
                await world.take(rpm=5)
                await lease.release(rpm=3)
                raise Failure
        assert await world.level() == 5000

    @for_each("operation", ["adjust", "consume", "release"])
    async def test_a_lease_cannot_be_used_after_its_block(
        self, world: World, operation: str
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(operation, rpm=1) as lease:
            pass
        with pytest.raises(LeaseExpiredError) as caught:
            await getattr(lease, operation)(rpm=1)
        assert caught.value.operation == operation
        assert await world.level("rpm", operation) == 9000

    async def test_a_lease_cannot_be_used_after_its_block_has_failed(self, world: World) -> None:
        await world.configure(RPM)
        with failing():
            async with world.acquire(rpm=1) as lease:
                raise Failure
        with pytest.raises(LeaseExpiredError):
            await lease.consume(rpm=1)
        assert await world.level() == 10_000

    async def test_consumed_can_be_read_after_the_block(self, world: World) -> None:
        await world.configure(RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.adjust(rpm=2)
        assert lease.consumed == {"rpm": 3}

    async def test_an_acquire_is_for_one_use(self, world: World) -> None:
        await world.configure(RPM)
        once = world.acquire(rpm=1)
        async with once:
            pass
        with pytest.raises(RuntimeError):
            async with once:
                pass
        assert await world.level() == 9000

    async def test_an_acquire_that_is_not_entered_takes_nothing_and_warns(
        self, world: World
    ) -> None:
        await world.configure(RPM)
        with pytest.warns(RuntimeWarning, match="'user-1' on 'api', .* was never entered"):
            world.acquire(rpm=10)
        assert await world.repo.get_buckets(USER, API) == []

    @for_each("operation", ["adjust", "consume", "release"])
    async def test_an_unknown_limit_is_a_mistake_and_is_named(
        self, world: World, operation: str
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(operation, rpm=1) as lease:
            with pytest.raises(ValidationError) as caught:
                await getattr(lease, operation)(tokens=1)
            assert caught.value.field == f"{operation}.tokens"
            assert "rpm" in caught.value.reason
        assert await world.level("rpm", operation) == 9000

    @for_each("operation", ["adjust", "consume", "release"])
    @for_each("amount", [1.0, True, "1", None, float("nan")])
    async def test_amounts_are_whole_numbers(
        self, world: World, operation: str, amount: object
    ) -> None:
        await world.configure(RPM)
        async with world.acquire(operation, rpm=1) as lease:
            with pytest.raises(ValidationError) as caught:
                await getattr(lease, operation)(rpm=amount)
            assert caught.value.field == f"{operation}.rpm"

    @for_each("operation", ["consume", "release"])
    async def test_only_adjustments_may_be_negative(self, world: World, operation: str) -> None:
        await world.configure(RPM)
        async with world.acquire(operation, rpm=1) as lease:
            with pytest.raises(ValidationError):
                await getattr(lease, operation)(rpm=-1)
        assert await world.level("rpm", operation) == 9000

    async def test_a_limit_may_be_called_like_a_parameter(self, world: World) -> None:
        await world.configure(Limit.per_minute("self", 10), Limit.per_minute("operation", 10))
        both = {"self": 1, "operation": 1}
        async with world.limiter.acquire(USER, API, {"self": 1}) as lease:
            await lease.adjust(**both)
            await lease.consume(**both)
            await lease.release(**both)
        assert (await world.level("self"), await world.level("operation")) == (8000, 9000)

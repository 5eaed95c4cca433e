"""A limit that changes and changes back begins a new life: holds belong to the life they are of."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.each import for_each
from zae_limiter_contract._async.world import (
    API,
    USER,
    Failure,
    World,
    failing,
    require_usage_history,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAILY = Limit.quota("tokens", 100, per="day")
MONTHLY = Limit.quota("tokens", 100, per="month")
SESSION = Limit.quota("tokens", 100, after_first_use="5h")
RATE = Limit.per_minute("tokens", 100)
SLOTS = Limit.concurrent("tokens", 2)
USD = Limit.budget("spend", "100.00", per="day", currency="USD")
EUR = Limit.budget("spend", "100.00", per="day", currency="EUR")


async def state(world: World, name: str = "tokens") -> tuple[Any, Any, Any]:
    """Return what is left, used and held of a quota."""
    answer = await world.limiter.check_availability(USER, API, {})
    shown = next(each for each in answer.statuses if each.limit_name == name)
    return shown.available, shown.used, shown.held


async def use_under(world: World, limit: Limit) -> None:
    """Set a limit, and bring the bucket to it."""
    await world.configure(limit)
    async with world.limiter.acquire(USER, API, {limit.name: 1}):
        pass


async def total(world: World, name: str = "tokens") -> Any:
    """Return the whole usage of a limit."""
    require_usage_history(world.spec)
    return (await world.repo.get_usage_summary(USER, API)).total[name]


class LimitLifeContract(Contract):
    """The end of a call concerns the life of the limit that has admitted it, and no later one."""

    @pytest.fixture
    def changing(self, world: World) -> World:
        world.clock.set(int(NOON.timestamp() * 1000))
        return world

    async def test_a_call_from_before_a_rate_takes_no_hold_of_a_later_quota(
        self, changing: World
    ) -> None:
        await changing.configure(DAILY)
        with failing():
            async with changing.acquire(tokens=60):
                await use_under(changing, RATE)
                await changing.configure(DAILY)
                other = changing.acquire(tokens=100)
                await other.__aenter__()
                raise Failure
        assert await state(changing) == (0, 0, 100)
        assert not await changing.granted(tokens=1)
        await other.__aexit__(None, None, None)
        assert await state(changing) == (0, 100, 0)
        assert await total(changing) == 101

    async def test_a_cost_from_before_a_rate_is_usage_of_the_later_quota(
        self, changing: World
    ) -> None:
        await changing.configure(DAILY)
        async with changing.acquire(tokens=60) as lease:
            await use_under(changing, RATE)
            await use_under(changing, DAILY)
            await lease.settle(tokens=70)
        assert await state(changing) == (99, 1, 0)
        assert await total(changing) == 72

    async def test_a_call_that_ends_under_a_rate_counts_its_cost_once(
        self, changing: World
    ) -> None:
        await changing.configure(DAILY)
        async with changing.acquire(tokens=60) as lease:
            await use_under(changing, RATE)
            await lease.settle(tokens=70)
        assert await total(changing) == 71

    async def test_a_calendar_that_is_changed_and_changed_back_charges_a_call_once(
        self, changing: World
    ) -> None:
        await changing.configure(DAILY)
        async with changing.acquire(tokens=60):
            await use_under(changing, MONTHLY)
            await use_under(changing, DAILY)
        assert await state(changing) == (38, 62, 0)
        assert await total(changing) == 62

    async def test_a_calendar_changes_while_another_limit_is_removed(self, changing: World) -> None:
        session = Limit.quota("session", 100, after_first_use="5h")
        changing.clock.advance(minutes=50)
        for minutes in 5, 6:  # in one hour, and in the next one
            await changing.configure(DAILY, session)
            async with changing.acquire(f"user-{minutes}", tokens=60):
                changing.clock.advance(minutes=minutes)
                await changing.configure(MONTHLY)
                await changing.take(f"user-{minutes}", tokens=1)
            assert await changing.limiter.available(f"user-{minutes}", API) == {"tokens": 39}
            if changing.spec.capabilities.usage_history:
                summary = await changing.repo.get_usage_summary(f"user-{minutes}", API)
                assert summary.total["tokens"] == 61

    async def test_a_call_takes_no_hold_of_a_calendar_that_came_back(self, changing: World) -> None:
        await changing.configure(DAILY)
        old = changing.acquire(tokens=30)
        await old.__aenter__()
        await use_under(changing, MONTHLY)
        await changing.configure(DAILY)
        async with changing.acquire(tokens=60):
            with failing():
                await old.__aexit__(Failure, error := Failure(), None)
                raise error
            assert (await state(changing))[2] == 60
        assert await total(changing) == 61

    async def test_a_first_use_quota_that_comes_back_keeps_its_holds(self, changing: World) -> None:
        await changing.configure(SESSION)
        old = changing.acquire(tokens=60)
        await old.__aenter__()
        await use_under(changing, DAILY)
        await changing.configure(SESSION)
        async with changing.acquire(tokens=80):
            await old.__aexit__(None, None, None)
            assert await state(changing) == (20, 0, 80)
        assert await state(changing) == (20, 80, 0)
        assert await total(changing) == 141

    async def test_a_currency_that_comes_back_keeps_its_holds(self, changing: World) -> None:
        await changing.configure(USD)
        old = changing.limiter.acquire(USER, API, {"spend": "60"})
        await old.__aenter__()
        await use_under(changing, EUR)
        await changing.configure(USD)
        async with changing.limiter.acquire(USER, API, {"spend": "80"}):
            await old.__aexit__(None, None, None)
            assert await state(changing, "spend") == (Decimal(20), 0, 80)
        assert await state(changing, "spend") == (Decimal(20), 80, 0)

    @for_each(("quota", "other"), [(DAILY, RATE), (DAILY, MONTHLY), (SESSION, RATE), (DAILY, None)])
    async def test_a_quota_that_was_not_named_takes_no_cost_back_in_a_later_life(
        self, changing: World, quota: Limit, other: Limit | None
    ) -> None:
        plenty = Limit.per_day("calls", 1000)
        await changing.repo.delete_entity(USER)
        await changing.configure(quota, plenty)
        async with changing.acquire(calls=1) as lease:
            await lease.settle(tokens=80, now=True)
            if other is None:
                await changing.repo.delete_entity(USER)
            else:
                await changing.configure(other, plenty)
                await changing.take(tokens=0)
                await changing.configure(quota, plenty)
            await changing.take(tokens=10)
            before = await state(changing)
            await lease.settle(tokens=0, now=True)
            assert await state(changing) == before
            await lease.settle(tokens=50)
        assert await state(changing) == before

    async def test_a_call_from_before_a_rate_frees_no_later_slot(self, changing: World) -> None:
        await changing.configure(SLOTS)
        old = changing.acquire(tokens=2)
        await old.__aenter__()
        await use_under(changing, RATE)
        await changing.configure(SLOTS)
        async with changing.acquire(tokens=2):
            await old.__aexit__(None, None, None)
            assert not await changing.granted(tokens=1)
        await changing.take(tokens=2)

    async def test_a_call_renews_no_hold_of_a_later_life(self, changing: World) -> None:
        await changing.configure(DAILY)
        old = changing.acquire(tokens=60)
        await old.__aenter__()
        await use_under(changing, RATE)
        await changing.configure(DAILY)
        dead = changing.acquire(tokens=60)
        await dead.__aenter__()
        changing.clock.advance(seconds=1)
        async with changing.acquire(tokens=40):
            assert (await state(changing))[2] == 100
            await old.__aexit__(None, None, None)
            assert (await state(changing))[2] == 100
        await dead.__aexit__(None, None, None)
        assert await state(changing) == (0, 100, 0)

    async def test_a_client_that_knows_of_no_change_takes_no_hold_of_a_later_life(
        self, changing: World
    ) -> None:
        other = await changing.open()
        limiter = RateLimiter(other)
        for before, after in (RATE, DAILY), (MONTHLY, DAILY):
            await changing.configure(DAILY)
            await changing.repo.delete_entity(USER)
            await changing.repo.create_entity(USER)
            old = changing.acquire(tokens=60)
            await old.__aenter__()
            for limit in before, after:
                await other.set_system_defaults([limit])
                async with limiter.acquire(USER, API, {"tokens": 0}):
                    pass
            new = limiter.acquire(USER, API, {"tokens": 40})
            await new.__aenter__()
            await old.__aexit__(Failure, Failure(), None)
            shown = await limiter.check_availability(USER, API, {})
            assert [each.held for each in shown.statuses] == [40]
            await new.__aexit__(None, None, None)

    async def test_a_call_of_a_rate_gives_nothing_to_a_later_quota(self, changing: World) -> None:
        for later in DAILY, SESSION, SLOTS:
            await changing.repo.delete_entity(USER)
            await changing.repo.create_entity(USER)
            await changing.configure(RATE)
            with failing():
                async with changing.acquire(tokens=60):
                    await use_under(changing, later)
                    raise Failure
            left = 2 if later is SLOTS else 99
            assert await changing.limiter.available(USER, API) == {"tokens": left}

    async def test_a_call_of_a_rate_charges_nothing_to_a_later_quota(self, changing: World) -> None:
        for later in DAILY, SESSION:
            await changing.repo.delete_entity(USER)
            await changing.repo.create_entity(USER)
            await changing.configure(RATE)
            async with changing.acquire(tokens=60) as lease:
                await use_under(changing, later)
                await lease.settle(tokens=90)
            assert await changing.limiter.available(USER, API) == {"tokens": 99}

    async def test_a_client_that_knows_a_rate_gives_nothing_to_a_later_quota(
        self, changing: World
    ) -> None:
        other = await changing.open()
        for failed in True, False:
            await changing.repo.delete_entity(USER)
            await changing.repo.create_entity(USER)
            await changing.configure(RATE)
            old = changing.acquire(tokens=60)
            lease = await old.__aenter__()
            await other.set_system_defaults([DAILY])
            async with RateLimiter(other).acquire(USER, API, {"tokens": 1}):
                pass
            if failed:
                await old.__aexit__(Failure, Failure(), None)
            else:
                await lease.settle(tokens=90)
                await old.__aexit__(None, None, None)
            assert await RateLimiter(other).available(USER, API) == {"tokens": 99}
        if changing.spec.capabilities.usage_history:
            summary = await changing.repo.get_usage_summary(USER, API)
            assert summary.total == {"tokens": 92}

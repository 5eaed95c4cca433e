"""Quotas: an amount for each window, held by calls in flight, settled in the window that admits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from math import ceil, inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.limit import MAX_TOKENS, MAX_UNITS, Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

DAILY = Limit.quota("tokens", 1000, per="day")
USD = Limit.budget("usd", "10.00", per="month", zone="America/New_York")
SESSION = Limit.quota("tokens", 1000, after_first_use="5h")
RPM = Limit.per_minute("rpm", 100)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR_S, DAY_S = 3600, 86_400


def at(world: World, moment: datetime) -> None:
    world.clock.set(int(moment.timestamp() * 1000))


async def status(world: World, name: str = "tokens", **needed: Any) -> LimitStatus:
    """Return the status of a limit, as an acquire would see it."""
    answer = await world.limiter.check_availability(USER, API, needed)
    return next(each for each in answer.statuses if each.limit_name == name)


async def left(world: World, name: str = "tokens") -> Any:
    return (await world.limiter.available(USER, API))[name]


async def use(world: World, estimate: int, cost: int, name: str = "tokens") -> None:
    """Make a call with an estimate, and settle its cost."""
    async with world.limiter.acquire(USER, API, {name: estimate}) as lease:
        await lease.settle({name: cost})


async def exhaust(world: World, entity_id: str, resource: str) -> None:
    """Take all of RPM by another client, so that this one does not reject from its cache."""
    other = RateLimiter(await world.open())
    async with other.acquire(entity_id, resource, {"rpm": 100}):
        pass


class QuotaContract(Contract):
    """No window gives out more than its amount, and nothing of it is lost."""

    # --- windows

    async def test_a_quota_does_not_refill_within_its_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        await world.take(tokens=1000)
        world.clock.advance(seconds=11 * HOUR_S)
        refused = await world.refusal(tokens=1)
        assert refused.retry_after_seconds == HOUR_S
        world.clock.advance(ms=HOUR_S * 1000 - 1)
        assert not await world.granted(tokens=1)
        world.clock.advance(ms=1)
        await world.take(tokens=1000)

    async def test_unspent_tokens_and_debts_end_with_the_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        await use(world, 10, 1500)
        assert await left(world) == -500
        assert (await status(world)).overdrawn
        world.clock.advance(seconds=12 * HOUR_S)
        assert await left(world) == 1000
        await world.take(tokens=300)
        world.clock.advance(seconds=DAY_S)
        assert await left(world) == 1000
        assert (await world.refusal(tokens=1001)).retry_after_seconds == inf

    async def test_windows_follow_the_clock_of_their_zone(self, world: World) -> None:
        zone = ZoneInfo("America/New_York")
        at(world, datetime(2026, 3, 31, 23, 59, tzinfo=zone))
        await world.configure(Limit.quota("tokens", 5, per="month", zone="America/New_York"))
        await world.take(tokens=5)
        shown = await status(world, tokens=1)
        assert shown.window_start == datetime(2026, 3, 1, tzinfo=zone)
        assert shown.window_end == datetime(2026, 4, 1, tzinfo=zone)
        assert (shown.used, shown.held, shown.exceeded) == (5, 0, True)
        assert shown.retry_after_seconds == 60
        world.clock.advance(seconds=60)
        await world.take(tokens=5)

    async def test_headers_show_money_in_its_unit_and_the_real_window(self, world: World) -> None:
        at(world, datetime(2026, 2, 10, tzinfo=UTC))
        await world.configure(Limit.budget("usd", "2.00", per="month"), RPM)
        async with world.limiter.acquire(USER, API, {"usd": "1.50"}) as lease:
            headers = lease.headers()
        policies, left = headers["RateLimit-Policy"], headers["RateLimit"]
        assert f'"usd";q=2000000;qu="micro-USD";w={28 * DAY_S}' in policies.split(", ")
        assert f'"usd";r=500000;t={19 * DAY_S}' in left.split(", ")
        refused = await world.refusal(usd="0.75")  # type: ignore[arg-type]
        assert '"usd";r=500000;' in refused.headers()["RateLimit"]
        assert refused.headers("x-ratelimit")["X-RateLimit-Limit"] == "100"

    async def test_a_window_from_first_use_begins_with_a_charge(self, world: World) -> None:
        at(world, NOON)
        await world.configure(SESSION, RPM)
        await world.take(rpm=1)  # does not name the quota
        world.clock.advance(seconds=HOUR_S)
        assert (await status(world)).window_start is None
        await world.take(tokens=900)
        world.clock.advance(seconds=4 * HOUR_S)
        assert (await world.refusal(tokens=101)).retry_after_seconds == HOUR_S
        world.clock.advance(seconds=HOUR_S)
        assert await left(world) == 1000
        world.clock.advance(seconds=9 * HOUR_S)
        await world.take(tokens=1000)
        world.clock.advance(seconds=5 * HOUR_S - 1)
        assert not await world.granted(tokens=1)
        world.clock.advance(seconds=1)
        assert await world.granted(tokens=1)

    async def test_a_client_whose_clock_is_behind_joins_the_window(self, world: World) -> None:
        at(world, datetime(2026, 3, 11, 0, 0, 1, tzinfo=UTC))
        await world.configure(DAILY)
        await world.take(tokens=600)
        world.clock.set(world.clock() - 2000)
        await world.take(tokens=400)
        assert not await world.granted(tokens=1)
        world.clock.set(world.clock() + 2000)
        assert await left(world) == 0

    async def test_a_quota_that_is_not_named_and_overdrawn_stops_calls(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY, RPM)
        await use(world, 10, 1001)
        refused = await world.refusal(rpm=1)
        assert [each.limit_name for each in refused.violations] == ["tokens"]
        assert refused.retry_after_seconds == 12 * HOUR_S
        world.clock.advance(seconds=12 * HOUR_S)
        await world.take(rpm=1)

    # --- settlement

    async def test_a_call_is_settled_in_its_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=800) as lease:
            assert (await left(world), (await status(world)).held) == (200, 800)
            await lease.settle(tokens=300)
        shown = await status(world)
        assert (shown.available, shown.used, shown.held) == (700, 300, 0)

    async def test_a_call_is_settled_after_another_client_has_charged(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        other = RateLimiter(await world.open())
        mine, theirs = world.acquire(tokens=300), other.acquire(USER, API, {"tokens": 200})
        async with mine as lease, theirs as other_lease:
            await lease.settle(tokens=100, now=True)
            await other_lease.settle(tokens=50)
        shown = await status(world)
        assert (shown.available, shown.used, shown.held) == (850, 150, 0)
        assert await world.spent("tokens") == 150

    async def test_a_late_refund_stays_in_its_window(self, world: World) -> None:
        at(world, datetime(2026, 3, 10, 23, 59, 59, tzinfo=UTC))
        await world.configure(DAILY)
        call = world.acquire(tokens=900)
        lease = await call.__aenter__()
        world.clock.advance(seconds=2)
        await world.take(tokens=600)
        await lease.settle(tokens=100)
        await call.__aexit__(None, None, None)
        assert await left(world) == 400
        assert not await world.granted(tokens=401)
        assert await world.spent("tokens") == 700

    async def test_a_late_debt_stays_in_its_window(self, world: World) -> None:
        at(world, datetime(2026, 3, 10, 23, 59, 59, tzinfo=UTC))
        await world.configure(DAILY)
        async with world.acquire(tokens=100) as lease:
            world.clock.advance(seconds=2)
            await world.take(tokens=1)
            await lease.settle(tokens=5000)
        assert await left(world) == 999
        assert await world.spent("tokens") == 5001

    async def test_a_failed_block_gives_back_what_it_held(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        with failing():
            async with world.acquire(tokens=400):
                raise Failure
        shown = await status(world)
        assert (shown.available, shown.used, shown.held) == (1000, 0, 0)
        assert await world.spent("tokens") == 0

    async def test_changes_within_the_block_change_what_it_holds(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=400) as lease:
            await lease.release(tokens=100)
            assert ((await status(world)).held, await left(world)) == (300, 700)
            await lease.consume(tokens=50)
            assert ((await status(world)).held, await left(world)) == (350, 650)
            await lease.settle(tokens=600, now=True)
            assert ((await status(world)).used, (await status(world)).held) == (600, 0)
            assert await left(world) == 400
            await lease.adjust(tokens=-200)
        shown = await status(world)
        assert (shown.available, shown.used, shown.held) == (600, 400, 0)
        assert await world.spent("tokens") == 400

    async def test_a_debt_of_a_quota_that_was_not_named_is_charged(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY, RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.settle(tokens=250)
        assert await left(world) == 750
        world.clock.advance(seconds=DAY_S)
        async with world.acquire(rpm=1) as lease:
            await lease.settle(tokens=100)
        assert await left(world) == 900

    @pytest.mark.parametrize("first", [1, 79, 80, 100])
    async def test_a_first_use_that_is_settled_several_times_costs_what_was_settled_last(
        self, world: World, first: int
    ) -> None:
        at(world, NOON)
        await world.configure(SESSION, RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.settle(tokens=first, now=True)
            assert await left(world) == 1000 - first
            world.clock.advance(seconds=HOUR_S)
            await lease.settle(tokens=80)
        shown = await status(world)
        assert (shown.available, shown.used, shown.held) == (920, 80, 0)
        assert shown.window_start == NOON
        assert await world.spent("tokens") == 80
        await world.take(tokens=920)
        await world.refusal(tokens=1)

    @pytest.mark.parametrize("last", [80, 1])
    async def test_a_first_use_that_is_settled_in_its_window_changes_no_later_one(
        self, world: World, last: int
    ) -> None:
        at(world, NOON)
        await world.configure(SESSION, RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.settle(tokens=30, now=True)
            world.clock.advance(seconds=6 * HOUR_S)
            await world.take(tokens=5)
            await lease.settle(tokens=last)
        assert await left(world) == 995
        assert await world.spent("tokens") == last + 5

    async def test_a_first_use_after_its_window_begins_no_other_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(SESSION, RPM)
        async with world.acquire(rpm=1) as lease:
            await lease.settle(tokens=30, now=True)
            world.clock.advance(seconds=6 * HOUR_S)
            await lease.settle(tokens=80)
        assert await left(world) == 1000
        assert await world.spent("tokens") == 80
        world.clock.advance(seconds=HOUR_S)
        await world.take(tokens=1)
        assert (await status(world)).window_start == NOON + timedelta(hours=7)

    @pytest.mark.parametrize("resource", ["all-models", "zoo"])
    async def test_a_call_that_another_resource_rejects_begins_no_window(
        self, world: World, resource: str
    ) -> None:
        at(world, NOON)
        await world.repo.set_resource_defaults(API, [SESSION, RPM])
        await world.repo.set_resource_defaults(resource, [RPM])
        await exhaust(world, USER, resource)
        await world.take(rpm=1)  # the bucket exists, and no window has begun
        call = partial(world.limiter.acquire, USER, API, {"tokens": 5})
        for _ in range(2):
            with pytest.raises(RateLimitExceeded):
                await call(also={resource: {"rpm": 1}}).__aenter__()
        shown = await status(world)
        assert (shown.available, shown.window_start, shown.window_end) == (1000, None, None)
        assert await world.spent("tokens") == 0
        world.clock.advance(seconds=60)
        async with call(also={resource: {"rpm": 1}}):
            pass
        shown = await status(world)
        assert (shown.available, shown.window_start) == (995, NOON + timedelta(seconds=60))

    async def test_a_call_that_its_parent_rejects_begins_no_window(self, world: World) -> None:
        at(world, NOON)
        await world.repo.set_limits("team", [RPM])
        await world.repo.set_limits("key", [SESSION])
        await world.repo.create_entity("key", parent_id="team", cascade=True)
        await world.take("key", tokens=0)
        await exhaust(world, "team", API)
        assert not await world.granted("key", tokens=5, rpm=1)
        answer = await world.limiter.check_availability("key", API, {"tokens": 1})
        session = next(each for each in answer.statuses if each.limit_name == "tokens")
        assert (session.available, session.window_start) == (1000, None)

    async def test_a_rejected_call_leaves_the_window_that_another_call_uses(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.repo.set_resource_defaults(API, [SESSION])
        await world.repo.set_resource_defaults("zoo", [RPM])
        await exhaust(world, USER, "zoo")
        begun = world.acquire(tokens=1)
        await begun.__aenter__()
        world.clock.advance(seconds=30)
        with pytest.raises(RateLimitExceeded):
            await world.limiter.acquire(
                USER, API, {"tokens": 5}, also={"zoo": {"rpm": 100}}
            ).__aenter__()
        assert (await status(world)).window_start == NOON
        await begun.__aexit__(None, None, None)
        assert await left(world) == 999

    # --- holds

    async def test_the_holds_of_a_dead_call_expire(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 1000, per="day", hold_ttl=60))
        dead = world.acquire(tokens=700)
        await dead.__aenter__()
        refused = await world.refusal(tokens=400)
        assert refused.retry_after_seconds == 60
        assert refused.primary_violation is not None
        assert refused.primary_violation.held == 700
        world.clock.advance(seconds=60)
        assert await left(world) == 1000
        await world.take(tokens=1000)
        assert not await world.granted(tokens=1)
        assert await world.spent("tokens") == 1000

    async def test_expired_holds_repay_a_debt_for_calls_that_do_not_name_the_quota(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 100, per="day", hold_ttl=60), RPM)
        dead = world.acquire(tokens=60)
        await dead.__aenter__()
        await use(world, 40, 90)
        refused = await world.refusal(rpm=1)
        (violation,) = refused.violations
        assert (violation.limit_name, violation.available) == ("tokens", -50)
        assert refused.retry_after_seconds == 60
        world.clock.advance(ms=59_999)
        assert (await world.refusal(rpm=1)).retry_after_seconds == 0.001
        world.clock.advance(ms=1)
        assert await left(world) == 10
        await world.take(rpm=1)
        await world.take(tokens=10)
        assert (await left(world), await world.spent("tokens")) == (0, 100)
        assert (await status(world)).held == 0

    async def test_a_debt_beyond_the_expired_holds_stops_every_call_until_the_edge(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 100, per="day", hold_ttl=60), RPM)
        dead = world.acquire(tokens=60)
        await dead.__aenter__()
        await use(world, 40, 101)
        for waited_s in (0, 60):
            world.clock.advance(seconds=waited_s)
            refused = await world.refusal(rpm=1)
            (violation,) = refused.violations
            assert violation.limit_name == "tokens"
            assert refused.retry_after_seconds == 12 * HOUR_S - waited_s
        at(world, NOON)
        world.clock.advance(seconds=12 * HOUR_S)
        await world.take(rpm=1)

    async def test_calls_that_use_up_the_quota_return_expired_holds_once(
        self, world: World
    ) -> None:
        """Calls of two clients that know the overdrawn bucket, one of them from before."""
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 100, per="day", hold_ttl=60), RPM)
        other = RateLimiter(await world.open())
        dead = world.acquire(tokens=60)
        await dead.__aenter__()
        await use(world, 40, 90)
        with pytest.raises(RateLimitExceeded):
            await other.acquire(USER, API, {"rpm": 1}).__aenter__()
        world.clock.advance(seconds=60)
        await world.take(rpm=1)
        async with other.acquire(USER, API, {"rpm": 1, "tokens": 4}):
            await world.take(rpm=1)
        async with other.acquire(USER, API, {"rpm": 1}) as lease:
            await lease.settle(tokens=1)
        await dead.__aexit__(None, None, None)  # it was late, and has used what it held
        assert await left(world) == -55
        assert await world.spent("tokens") == 155

    async def test_a_top_up_that_ends_before_another_limit_admits_is_no_help(
        self, world: World
    ) -> None:
        at(world, NOON)
        hourly, daily = (Limit.quota(name, 100, per=name) for name in ("hour", "day"))
        await world.configure(hourly, daily)
        await world.take(hour=1)
        await world.repo.top_up(USER, API, {"hour": 51})
        await use(world, 100, 100, "day")
        refused = await world.refusal(hour=150, day=1)
        assert refused.retry_after_seconds == inf
        waits = {each.limit_name: each.retry_after_seconds for each in refused.violations}
        assert waits == {"hour": inf, "day": 12 * HOUR_S}
        assert (await world.refusal(hour=100, day=1)).retry_after_seconds == 12 * HOUR_S
        answer = await world.limiter.check_availability(USER, API, {"hour": 150, "day": 1})
        assert (answer.available, answer.retry_after_seconds) == (False, inf)
        await world.take(hour=150)

    async def test_a_hold_that_expires_after_its_window_is_no_help(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 100, per="hour", hold_ttl=7200))
        dead = world.acquire(tokens=60)
        await dead.__aenter__()
        await world.repo.top_up(USER, API, {"tokens": 50})
        assert (await world.refusal(tokens=120)).retry_after_seconds == inf
        assert (await world.refusal(tokens=100)).retry_after_seconds == HOUR_S

    async def test_a_stopped_call_charges_its_cost_once(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 1000, per="day", hold_ttl=60))
        stopped = world.acquire(tokens=700)
        lease = await stopped.__aenter__()
        world.clock.advance(seconds=90)
        await world.take(tokens=100)  # returns what the stopped call held
        assert await left(world) == 900
        await lease.settle(tokens=650)
        await stopped.__aexit__(None, None, None)
        assert await left(world) == 250
        assert await world.spent("tokens") == 750

    async def test_a_hold_without_ttl_ends_with_its_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 1000, per="day", hold_ttl=None))
        dead = world.acquire(tokens=700)
        await dead.__aenter__()
        world.clock.advance(seconds=11 * HOUR_S)
        assert (await world.refusal(tokens=400)).retry_after_seconds == HOUR_S
        world.clock.advance(seconds=HOUR_S)
        await world.take(tokens=1000)
        await dead.__aexit__(None, None, None)
        assert await left(world) == 0

    async def test_a_cost_beyond_the_amount_overdraws_the_quota(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=1000) as lease:
            await lease.adjust(tokens=1)
        assert await left(world) == -1
        assert not await world.granted(tokens=0)

    async def test_no_debt_is_so_large_that_the_quota_seems_to_have_tokens(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.configure(
            RPM,
            Limit.quota("daily", 100, per="day"),
            Limit.quota("session", 100, after_first_use="24h"),
            Limit.quota("soft", 100, per="day", soft=True),
            Limit.budget("usd", 100, per="day"),
        )
        tokens = {"daily", "session", "soft"}
        most = {**dict.fromkeys(tokens, MAX_TOKENS), "usd": MAX_UNITS, "rpm": MAX_TOKENS}
        deepest = {**dict.fromkeys(tokens, -25 * 10**17), "usd": -25 * 10**11}
        calls = [world.limiter.acquire(USER, API, dict.fromkeys(most, 1)) for _ in range(4)]
        first, second, third, fourth = [await call.__aenter__() for call in calls]
        await fourth.settle(most, now=True)
        for lease in (first, second):
            for _ in range(2501):
                await lease.adjust(most)
            assert {name: lease.remaining[name] for name in deepest} == deepest
        for call in calls[:2]:
            await call.__aexit__(None, None, None)
            shown = await world.limiter.available(USER, API)
            assert {name: shown[name] for name in deepest} == deepest
        await fourth.settle(dict.fromkeys(most, 0))
        await calls[3].__aexit__(None, None, None)
        await world.repo.top_up(USER, API, {name: most[name] for name in deepest})
        shown = await world.limiter.available(USER, API)
        assert {name: shown[name] for name in deepest} == deepest
        assert shown["rpm"] == 100 - 5002 * MAX_TOKENS - 3
        assert await world.spent("daily") == 5002 * MAX_TOKENS + 3
        assert await world.spent("rpm") == 5002 * MAX_TOKENS + 3
        refused = await world.refusal(usd=1)
        waits = {each.limit_name: each.retry_after_seconds for each in refused.violations}
        day_s = {"daily": 12 * HOUR_S, "session": DAY_S, "usd": 12 * HOUR_S}
        assert waits.pop("rpm") > 10**15
        assert waits == day_s
        await world.repo.reset_bucket(USER, API)
        assert await world.limiter.available(USER, API) == {
            **dict.fromkeys([*deepest], 99),
            "rpm": 100,
        }
        await third.settle(daily=3)
        await calls[2].__aexit__(None, None, None)
        assert (await left(world, "daily"), await left(world, "usd")) == (97, 99)

    async def test_a_client_that_has_not_seen_a_large_debt_adds_to_it_once(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        other, deepest = RateLimiter(await world.open()), -25 * 10**17
        later = other.acquire(USER, API, {"tokens": 1})
        last = await later.__aenter__()
        async with other.acquire(USER, API, {"tokens": 1}) as late:
            async with world.acquire(tokens=1) as first, world.acquire(tokens=1) as second:
                await second.settle(tokens=7)
                for _ in range(2499):
                    await first.adjust(tokens=MAX_TOKENS)
            for _ in range(5):
                await late.adjust(tokens=MAX_TOKENS)
        assert await left(world) == deepest
        assert await world.spent("tokens") == 2504 * MAX_TOKENS + 1 + 7 + 1 + 1
        await other.check_availability(USER, API, {"tokens": 1})
        await world.repo.reset_bucket(USER, API)
        await last.adjust(tokens=9)
        await later.__aexit__(None, None, None)
        assert await left(world) == 990

    async def test_a_window_begins_anew_after_the_largest_debt(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=10) as lease:
            for _ in range(5001):
                await lease.adjust(tokens=MAX_TOKENS)
        await world.refusal(tokens=1)
        world.clock.advance(seconds=12 * HOUR_S)
        await world.take(tokens=1000)
        assert await left(world) == 0

    # --- budgets and soft limits

    async def test_a_budget_counts_billionths(self, world: World) -> None:
        at(world, NOON)
        await world.configure(USD)
        async with world.limiter.acquire(USER, API, {"usd": "0.10"}) as lease:
            assert lease.consumed == {"usd": Decimal("0.10")}
            await lease.settle(usd=Decimal("0.0123456781"))  # more than nine places are rounded up
        shown = await status(world, "usd")
        assert shown.used == Decimal("0.012345679")
        assert shown.available == Decimal("9.987654321")
        assert await left(world, "usd") == Decimal("9.987654321")
        async with world.limiter.acquire(USER, API, {"usd": 9}):
            pass
        with pytest.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire(USER, API, {"usd": "0.987654322"}):
                pass
        assert "usd: 0.987654321 of 10.00 USD left this month" in str(caught.value)

    async def test_amounts_that_are_no_money_are_refused(self, world: World) -> None:
        at(world, NOON)
        await world.configure(USD, RPM)
        for wrong in ({"usd": 0.1}, {"rpm": Decimal(1)}, {"rpm": "1"}, {"usd": "one"}):
            with pytest.raises(ValidationError):
                async with world.limiter.acquire(USER, API, wrong):  # type: ignore[arg-type]
                    pass
        async with world.acquire(rpm=1) as lease:
            with pytest.raises(ValidationError):
                await lease.settle(rpm="1")
            with pytest.raises(ValidationError):
                await lease.settle(usd=0.5)  # type: ignore[arg-type]

    async def test_a_soft_quota_never_rejects(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 10, per="day", soft=True), RPM)
        await world.take(tokens=8)
        await world.take(tokens=8)
        await world.take(rpm=1)
        shown = await status(world, tokens=100)
        assert (shown.available, shown.used) == (-6, 16)
        assert (shown.overdrawn, shown.exceeded) == (True, False)
        world.clock.advance(seconds=DAY_S)
        await world.take(tokens=80)
        assert await left(world) == -70

    async def test_a_soft_rate_never_rejects(self, world: World) -> None:
        await world.configure(Limit.per_minute("rpm", 2, soft=True))
        for _ in range(5):
            await world.take(rpm=1)
        shown = await status(world, "rpm")
        assert (shown.available, shown.overdrawn, shown.exceeded) == (-3, True, False)
        world.clock.advance(seconds=60)
        # A shard that is full accrues nothing, while another one repays its debt.
        assert -1 - ceil(2 * world.spec.may_lag) <= await left(world, "rpm") <= -1

    # --- changes by hand

    async def test_a_top_up_adds_to_the_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        await world.repo.top_up(USER, API, {"tokens": 200})
        assert await left(world) == 1200
        await world.take(tokens=1100)
        await world.repo.top_up(USER, API, {"tokens": 50})
        shown = await status(world)
        assert (shown.available, shown.used) == (150, 1100)
        world.clock.advance(seconds=DAY_S)
        assert await left(world) == 1000
        await world.repo.top_up(USER, API, {"tokens": 5})
        await world.take(tokens=1005)
        assert not await world.granted(tokens=1)

    async def test_a_top_up_reaches_a_quota_that_was_just_configured(self, world: World) -> None:
        at(world, NOON)
        await world.configure(RPM)
        await world.take(rpm=1)
        await world.configure(DAILY, RPM)
        await world.repo.top_up(USER, API, {"tokens": 200})
        assert await left(world) == 1200
        await world.configure(Limit.per_minute("tokens", 100), RPM)
        await world.take(tokens=90)
        await world.configure(DAILY, RPM)
        await world.repo.top_up(USER, API, {"tokens": 50})
        await world.take(tokens=1050)
        assert not await world.granted(tokens=1)

    async def test_a_first_use_quota_is_topped_up_within_its_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(SESSION)
        with pytest.raises(ValidationError):
            await world.repo.top_up(USER, API, {"tokens": 5})
        await world.take(tokens=1000)
        await world.repo.top_up(USER, API, {"tokens": 5})
        await world.take(tokens=5)
        assert not await world.granted(tokens=1)

    async def test_a_reset_forgives_settled_costs_and_keeps_holds(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        await world.repo.reset_bucket(USER, API)
        await use(world, 400, 300)
        async with world.acquire(tokens=500) as lease:
            await world.repo.reset_bucket(USER, API)
            assert await left(world) == 500
            await lease.settle(tokens=100)
        assert await left(world) == 900
        await world.repo.reset_bucket(USER, API)
        assert await left(world) == 1000

    async def test_another_amount_keeps_what_was_used(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        await use(world, 300, 300)
        await world.configure(Limit.quota("tokens", 2000, per="day"))
        assert await left(world) == 1700
        await world.take(tokens=100)
        await world.configure(Limit.quota("tokens", 200, per="day"))
        assert await left(world) == -200
        world.clock.advance(seconds=DAY_S)
        assert await left(world) == 200

    async def test_another_calendar_keeps_what_was_used(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=300) as lease:
            await world.configure(Limit.quota("tokens", 1000, per="month", zone="Asia/Tokyo"))
            await world.take(tokens=200)
            await lease.settle(tokens=100)
        assert await left(world) == 500  # the call of the old calendar keeps its estimate
        world.clock.advance(seconds=DAY_S)
        assert await left(world) == 500
        await world.configure(SESSION)
        assert await left(world) == 1000

    async def test_another_length_from_first_use_keeps_what_was_used(self, world: World) -> None:
        at(world, NOON)
        await world.configure(SESSION)
        await use(world, 900, 900)
        world.clock.advance(seconds=HOUR_S)
        await world.configure(Limit.quota("tokens", 1200, after_first_use="6h"))
        await use(world, 100, 100)  # brings the bucket to its limits
        assert await left(world) == 200
        world.clock.advance(seconds=5 * HOUR_S - 1)
        assert not await world.granted(tokens=201)
        world.clock.advance(seconds=1)
        await world.take(tokens=1200)
        await world.configure(Limit.quota("tokens", 1300, after_first_use="1h"))
        await use(world, 100, 100)
        world.clock.advance(seconds=HOUR_S)
        assert await left(world) == 1300  # the window that ran is shorter now

    async def test_another_currency_begins_full_and_forgets_holds(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.budget("cost", 10, per="month"))
        async with world.limiter.acquire(USER, API, {"cost": "4"}) as lease:
            await world.configure(Limit.budget("cost", 20, currency="EUR", per="month"))
            async with world.limiter.acquire(USER, API, {"cost": "5"}) as other:
                await other.settle(cost="1")
            await lease.settle(cost="3")
        shown = await status(world, "cost")
        assert (shown.available, shown.used, shown.held) == (19, 1, 0)

    async def test_a_quota_of_another_kind_forgets_holds(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY)
        async with world.acquire(tokens=600) as lease:
            await world.configure(SESSION)
            await world.take(tokens=100)
            assert ((await status(world)).held, await left(world)) == (0, 900)
            await lease.settle(tokens=50)
        assert await left(world) == 900
        assert await world.spent("tokens") == 150

    async def test_a_rate_becomes_a_quota_and_begins_full(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.per_minute("tokens", 100))
        await world.take(tokens=90)
        await world.configure(DAILY)
        await world.take(tokens=1000)
        await world.configure(Limit.per_minute("tokens", 100))
        await world.take(tokens=100)

    # --- beside others

    async def test_a_rejection_of_one_limit_takes_nothing_of_a_quota(self, world: World) -> None:
        at(world, NOON)
        await world.configure(DAILY, RPM)
        await world.refusal(tokens=10, rpm=101)
        assert await world.limiter.available(USER, API) == {"tokens": 1000, "rpm": 100}
        await world.refusal(tokens=1001, rpm=1)
        assert await world.limiter.available(USER, API) == {"tokens": 1000, "rpm": 100}

    async def test_a_cascade_charges_the_quota_of_the_parent(self, world: World) -> None:
        at(world, NOON)
        await world.repo.set_limits("team", [Limit.quota("tokens", 500, per="day")])
        await world.configure(DAILY)
        for key in ("key-1", "key-2"):
            await world.repo.create_entity(key, parent_id="team", cascade=True)
        async with world.acquire("key-1", tokens=400) as lease:
            refused = await world.refusal("key-2", tokens=200)
            assert [each.entity_id for each in refused.violations] == ["team"]
            await lease.settle(tokens=100)
        await world.take("key-2", tokens=400)
        assert await world.limiter.available("key-1", API) == {"tokens": 0}
        assert await world.limiter.available("key-2", API) == {"tokens": 0}
        assert (await world.repo.get_buckets("key-2", API))[0].used == 400

    async def test_the_refund_of_a_cascade_outlives_the_quota_of_its_parent(
        self, world: World
    ) -> None:
        at(world, NOON)
        await world.repo.set_limits("team", [DAILY, RPM])
        await world.configure(DAILY, RPM)
        await world.repo.create_entity(USER, parent_id="team", cascade=True)
        async with world.acquire(tokens=400, rpm=50) as lease:
            await world.repo.delete_entity("team")
            await world.repo.set_limits("team", [RPM])
            await world.take(rpm=20)  # makes the bucket of the parent again, without a quota
            await lease.settle(tokens=100, rpm=0)
        assert world.repo.lost_settlements == 0
        assert await world.limiter.available(USER, API) == {"tokens": 900, "rpm": 80}
        assert await world.tokens("rpm", "team") == 100

    async def test_the_error_speaks_of_the_window(self, world: World) -> None:
        at(world, datetime(2026, 11, 20, tzinfo=UTC))
        zone = Limit.quota("tokens", 1_000_000, per="month", zone="Europe/Berlin")
        await world.configure(zone)
        await use(world, 961_988, 961_988)
        async with world.acquire(tokens=38_000):
            refused = await world.refusal(tokens=4096)
        assert str(refused).endswith(
            "tokens: 12 of 1,000,000 left this month (Europe/Berlin), 4,096 requested, "
            "38,000 held by calls in flight; next window 2026-12-01 00:00 +01:00"
        )
        answer = refused.as_dict()["limits"][0]
        assert answer["window_end"] == "2026-12-01T00:00:00+01:00"
        assert answer["held"] == 38_000

    async def test_the_state_of_a_bucket_shows_its_window(self, world: World) -> None:
        at(world, NOON)
        await world.configure(USD)
        async with world.limiter.acquire(USER, API, {"usd": "1.5"}) as lease:
            await lease.settle(usd="0.25")
        async with world.limiter.acquire(USER, API, {"usd": "2"}):
            state = await world.repo.get_bucket(USER, API, "usd")
        assert state is not None
        assert state.limit == USD
        assert (state.used, state.held) == (Decimal("0.25"), Decimal("2.00"))
        assert state.available == Decimal("7.75")
        assert state.window_end == datetime(2026, 4, 1, tzinfo=ZoneInfo("America/New_York"))

    async def test_the_state_of_a_bucket_shows_when_held_amounts_expire(self, world: World) -> None:
        at(world, NOON)
        await world.configure(Limit.quota("tokens", 1000, per="day", hold_ttl=60))
        assert await world.repo.get_buckets(USER) == []
        async with world.limiter.acquire(USER, API, {"tokens": 300}):
            (state,) = await world.repo.get_buckets(USER)
            assert state.holds_expire_ms is not None
            assert 0 < state.holds_expire_ms - world.clock() <= 61_000
        (state,) = await world.repo.get_buckets(USER)
        assert (state.held, state.holds_expire_ms) == (0, None)

    async def test_quotas_are_stored_and_read(self, world: World) -> None:
        limits = [
            Limit.quota("a", 7, per="month", every=2, on=31, at="06:30", zone="Europe/Berlin"),
            Limit.budget("b", "0.000000001", currency="EUR", per="week", on="sun", hold_ttl=None),
            Limit.quota("c", 5, after_first_use=90, soft=True, thresholds=()),
            Limit.per_minute("d", 5, soft=True),
            Limit.concurrent("e", 5, lease_ttl=30, soft=True),
        ]
        await world.repo.set_limits(USER, limits, API)
        assert await world.repo.get_limits(USER, API) == limits
        await world.take(a=1)
        assert {each.limit for each in await world.repo.get_buckets(USER, API)} == set(limits)

    async def test_callers_wait_for_the_next_window(self, world: World) -> None:
        at(world, datetime(2026, 3, 10, 23, 59, 59, tzinfo=UTC))
        await world.configure(DAILY)
        await world.take(tokens=1000)
        with pytest.raises(RateLimitExceeded):
            async with world.limiter.acquire(USER, API, {"tokens": 1}, timeout=0.5):
                pass
        assert await left(world) == 0

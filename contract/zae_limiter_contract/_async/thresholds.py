"""Thresholds of quotas: each is raised once per window, by one of all clients."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from zae_limiter._async.ask import AcquireCall
from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.admission.request import ChargeRequest, Grant
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.hooks import ExhaustedEvent, Hooks, ThresholdEvent
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.calls import apause
from zae_limiter.runtime.finishing import Receipt
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.world import API, USER, Failure, World, failing
from zae_limiter_contract.together import agather

DAILY = Limit.quota("tokens", 1000, per="day")  # raises at 50, 80 and 100 percent
RPM = Limit.per_minute("rpm", 100)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 11, tzinfo=UTC)
HOUR_S, DAY_S = 3600, 86_400
MANY_TURNS = 1000


class Told(Hooks):
    """Remembers the thresholds and the exhausted quotas that clients were told of."""

    def __init__(self) -> None:
        self.events: list[ThresholdEvent] = []
        self.exhausted: list[ExhaustedEvent] = []

    def on_exhausted(self, event: ExhaustedEvent) -> None:
        self.exhausted.append(event)

    def on_threshold(self, event: ThresholdEvent) -> None:
        self.events.append(event)

    def percents(self, entity_id: str = USER) -> list[int]:
        return [event.percent for event in self.events if event.entity_id == entity_id]


class Scene:
    """One client with a hook, on a day in March at noon."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told = Told()
        self.repositories = [world.repo]
        self.limiter = RateLimiter(world.repo, hooks=self.told)
        world.clock.set(int(NOON.timestamp() * 1000))

    async def use(
        self, cost: Any, estimate: Any = None, *, entity_id: str = USER, name: str = "tokens"
    ) -> None:
        """Make a call that costs so much; its estimate is the cost, unless it is named.

        It waits for marks in the background: a top-up or another window that comes before the mark
        leaves nothing to raise.
        """
        wanted = {name: cost if estimate is None else estimate}
        async with self.limiter.acquire(entity_id, API, wanted) as lease:
            await lease.settle({name: cost})
        await self.raised()

    async def raised(self, entity_id: str = USER) -> list[int]:
        """Return the raised percentages, when no write in the background is left."""
        before = -1
        for _ in range(MANY_TURNS):
            for repository in self.repositories:
                await repository.list_resources()  # waits for writes in the background
            await apause()
            if before == (before := len(self.told.events) + len(self.told.exhausted)):
                break
        return self.told.percents(entity_id)

    async def reject(self, amount: Any, *, name: str = "tokens", **options: Any) -> None:
        """Make an acquire that is rejected."""
        with pytest.raises(RateLimitExceeded):
            async with self.limiter.acquire(USER, API, {name: amount}, **options):
                pass
        await self.raised()

    async def exhausted(self) -> list[tuple[str, Any]]:
        """Return the entities and requested amounts that exhausted a quota, when all is written."""
        await self.raised()
        return [(event.entity_id, event.requested) for event in self.told.exhausted]


class ThresholdContract(Contract):
    """One caller: which thresholds are raised, in which window, and with which figures."""

    @pytest.fixture
    async def scene(self, world: World) -> Scene:
        return Scene(world)

    async def test_each_threshold_is_raised_once_in_its_window(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        seen = []
        for _ in range(10):
            await scene.use(100)
            seen.append(await scene.raised())
        assert seen == [
            [], [], [], [], [50], [50], [50], [50, 80], [50, 80], [50, 80, 100],
        ]  # fmt: skip

    async def test_an_event_says_whose_quota_is_used_how_far(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(600)
        assert await scene.raised() == [50]
        assert scene.told.events == [
            ThresholdEvent(
                entity_id=USER,
                resource=API,
                limit_name="tokens",
                percent=50,
                used=600,
                amount=1000,
                window_start=datetime(2026, 3, 10, tzinfo=UTC),
                window_end=MIDNIGHT,
            )
        ]

    async def test_thresholds_of_a_budget_are_in_money(self, scene: Scene) -> None:
        zone = ZoneInfo("America/New_York")
        budget = Limit.budget("usd", "0.01", per="month", zone="America/New_York", thresholds=[33])
        await scene.world.configure(budget)
        await scene.use("0.003299999", name="usd")
        assert await scene.raised() == []
        await scene.use("0.000000001", name="usd")
        assert await scene.raised() == [33]
        event = scene.told.events[0]
        assert (event.used, event.amount) == (Decimal("0.0033"), Decimal("0.01"))
        assert event.window_end == datetime(2026, 4, 1, tzinfo=zone)

    async def test_a_call_over_several_thresholds_raises_the_lowest_first(
        self, scene: Scene
    ) -> None:
        await scene.world.configure(DAILY)
        await scene.use(1000)
        assert await scene.raised() == [50, 80, 100]

    async def test_held_amounts_count_as_used(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        async with scene.limiter.acquire(USER, API, {"tokens": 900}) as lease:
            assert await scene.raised() == [50, 80]
            await lease.settle(tokens=10)
        await scene.use(890)
        assert await scene.raised() == [50, 80]  # at 900 again
        await scene.use(100)
        assert await scene.raised() == [50, 80, 100]

    async def test_a_settlement_above_the_estimate_raises(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(1100, estimate=10)
        assert await scene.raised() == [50, 80, 100]
        assert scene.told.events[-1].used == 1100

    async def test_a_consume_and_an_early_settlement_raise(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        async with scene.limiter.acquire(USER, API, {"tokens": 100}) as lease:
            await lease.consume(tokens=400)
            assert await scene.raised() == [50]
            await lease.settle(tokens=800, now=True)
            assert await scene.raised() == [50, 80]

    async def test_a_hook_that_ends_the_program_ends_no_later_event(self, scene: Scene) -> None:
        class Exiting(Told):
            def on_threshold(self, event: ThresholdEvent) -> None:
                super().on_threshold(event)
                raise SystemExit

        await scene.world.configure(DAILY)
        scene.told = Exiting()
        scene.limiter = RateLimiter(scene.world.repo, hooks=scene.told)
        await scene.use(1000)
        assert await scene.raised() == [50, 80, 100]

    async def test_a_call_that_waits_raises(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        async with scene.limiter.acquire(USER, API, {"tokens": 500}, timeout=5):
            pass
        assert await scene.raised() == [50]

    async def test_a_refund_lets_nothing_be_raised_again(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        for _ in range(3):
            with failing():
                async with scene.limiter.acquire(USER, API, {"tokens": 600}):
                    await scene.raised()  # in the background: after the refund there is none
                    raise Failure
        assert await scene.raised() == [50]

    async def test_a_rejected_call_raises_nothing(self, scene: Scene) -> None:
        await scene.world.configure(DAILY, RPM)
        await scene.world.refusal(tokens=1001)
        await scene.world.refusal(tokens=900, rpm=101)
        assert await scene.raised() == []

    async def test_thresholds_are_raised_again_in_the_next_window(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(900)
        scene.world.clock.advance(seconds=12 * HOUR_S)
        await scene.use(400)
        assert await scene.raised() == [50, 80]
        await scene.use(100)
        assert await scene.raised() == [50, 80, 50]
        assert scene.told.events[-1].window_start == MIDNIGHT

    async def test_thresholds_of_a_first_use_window(self, scene: Scene) -> None:
        await scene.world.configure(Limit.quota("tokens", 10, after_first_use="5h"))
        for _ in range(2):
            await scene.use(5)
            scene.world.clock.advance(seconds=5 * HOUR_S)
        assert await scene.raised() == [50, 50]
        first, second = scene.told.events
        assert first.window_start == NOON
        assert second.window_start == first.window_end

    async def test_soft_limits_raise_above_the_amount(self, scene: Scene) -> None:
        soft = Limit.quota("tokens", 100, per="day", soft=True, thresholds=(100, 150, 300))
        await scene.world.configure(soft)
        await scene.use(99)
        assert await scene.raised() == []
        await scene.use(50)
        assert await scene.raised() == [100]
        await scene.use(1)
        assert await scene.raised() == [100, 150]
        await scene.use(150)
        assert await scene.raised() == [100, 150, 300]
        assert scene.told.events[-1].used == 300

    async def test_a_soft_limit_is_logged_without_advice(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "zae_limiter")
        await scene.world.configure(Limit.quota("tokens", 100, per="day", soft=True))
        await scene.use(120)
        await scene.raised()
        logged = [each.getMessage() for each in caplog.records if "thresh" in each.getMessage()]
        assert len(logged) == 3
        assert all(each.endswith("; it is soft, so calls go on") for each in logged)
        assert not [each for each in logged if "top-up" in each]

    async def test_without_thresholds_nothing_is_raised(self, scene: Scene) -> None:
        await scene.world.configure(Limit.quota("tokens", 100, per="day", thresholds=()), RPM)
        await scene.use(100)
        assert await scene.raised() == []

    async def test_the_thresholds_of_a_parent_are_raised_under_its_id(self, scene: Scene) -> None:
        repo = scene.world.repo
        await scene.world.configure(DAILY)
        await repo.set_limits("team", [Limit.quota("tokens", 1500, per="day", thresholds=[40])])
        for key in ("key-1", "key-2"):
            await repo.create_entity(key, parent_id="team", cascade=True)
            await scene.use(400, entity_id=key)
        assert await scene.raised("team") == [40]
        assert scene.told.percents("key-1") == scene.told.percents("key-2") == []
        await scene.use(100, entity_id="key-1")
        assert await scene.raised("key-1") == [50]
        assert scene.told.percents("team") == [40]

    async def test_the_state_of_a_bucket_shows_the_last_raised_threshold(
        self, scene: Scene
    ) -> None:
        await scene.world.configure(DAILY)
        shown = []
        for cost in (400, 100, 300, 200):
            await scene.use(cost)
            await scene.raised()
            state = await scene.world.repo.get_bucket(USER, API, "tokens")
            assert state is not None
            shown.append(state.raised)
        assert shown == [None, 50, 80, 100]
        scene.world.clock.advance(seconds=DAY_S)
        state = await scene.world.repo.get_bucket(USER, API, "tokens")
        assert state is not None
        assert state.raised is None

    # --- changes by hand

    async def test_a_reset_lets_all_be_raised_again(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(900)
        await scene.raised()
        await scene.world.repo.reset_bucket(USER, API)
        await scene.use(490)
        assert await scene.raised() == [50, 80]
        await scene.use(10)
        assert await scene.raised() == [50, 80, 50]

    async def test_a_top_up_lets_those_be_raised_again_that_it_undoes(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(1000)
        await scene.raised()
        await scene.world.repo.top_up(USER, API, {"tokens": 400})  # 400 left: 50 % are used
        await scene.use(100)
        assert await scene.raised() == [50, 80, 100]
        await scene.use(100)
        assert await scene.raised() == [50, 80, 100, 80]
        assert scene.told.events[-1].used == 1200  # of the amount and its top-ups
        await scene.use(200)
        assert await scene.raised() == [50, 80, 100, 80, 100]

    async def test_a_top_up_raises_nothing(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(600)
        for _ in range(2):
            await scene.world.repo.top_up(USER, API, {"tokens": 10})
        await scene.use(1)
        assert await scene.raised() == [50]

    async def test_another_amount_counts_as_raised_as_far_as_it_is_reached(
        self, scene: Scene
    ) -> None:
        await scene.world.configure(DAILY)
        await scene.use(400)
        await scene.world.configure(Limit.quota("tokens", 500, per="day"))
        await scene.use(50)  # 90 % of 500
        assert await scene.raised() == []
        await scene.world.configure(Limit.quota("tokens", 1000, per="day"))
        await scene.use(50)
        assert await scene.raised() == [50]

    async def test_other_thresholds_count_as_raised_as_far_as_they_are_reached(
        self, scene: Scene
    ) -> None:
        await scene.world.configure(DAILY)
        await scene.use(600)
        await scene.raised()
        await scene.world.configure(
            Limit.quota("tokens", 1000, per="day", thresholds=(10, 20, 30, 50, 70))
        )
        await scene.use(50)
        assert await scene.raised() == [50]
        await scene.use(50)
        assert await scene.raised() == [50, 70]

    async def test_another_calendar_lets_all_be_raised_again(self, scene: Scene) -> None:
        """Its windows have lower numbers: a mark that stays would silence it for centuries."""
        await scene.world.configure(DAILY)
        await scene.use(900)
        await scene.raised()
        await scene.world.configure(Limit.quota("tokens", 1000, per="month"))
        await scene.use(50)
        assert await scene.raised() == [50, 80, 50, 80]

    async def test_other_options_leave_the_mark_as_it_is(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(600)
        await scene.raised()
        await scene.world.configure(Limit.quota("tokens", 1000, per="day", hold_ttl=60))
        await scene.use(100)
        assert await scene.raised() == [50]

    # --- exhausted quotas

    async def test_the_first_rejection_of_a_window_exhausts_a_budget(self, scene: Scene) -> None:
        zone = ZoneInfo("America/New_York")
        budget = Limit.budget("usd", "10.00", per="month", zone="America/New_York")
        await scene.world.configure(budget)
        await scene.use("9.25", name="usd")
        for amount in ("0.80", "0.90", "0.76"):
            await scene.reject(amount, name="usd")
        assert await scene.exhausted() == [(USER, Decimal("0.80"))]
        assert scene.told.exhausted == [
            ExhaustedEvent(
                entity_id=USER,
                resource=API,
                limit_name="usd",
                requested=Decimal("0.80"),
                available=Decimal("0.75"),
                used=Decimal("9.25"),
                amount=Decimal("10.00"),
                window_start=datetime(2026, 3, 1, tzinfo=zone),
                window_end=datetime(2026, 4, 1, tzinfo=zone),
            )
        ]
        assert await scene.raised() == [50, 80]  # that of 100 percent is not reached

    async def test_thresholds_are_raised_after_a_quota_was_exhausted(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(400)
        await scene.reject(700)
        assert await scene.exhausted() == [(USER, 700)]
        await scene.use(600)
        assert await scene.raised() == [50, 80, 100]

    async def test_a_hook_that_ends_the_program_does_not_end_a_rejected_call(
        self, scene: Scene
    ) -> None:
        class Exiting(Told):
            def on_exhausted(self, event: ExhaustedEvent) -> None:
                super().on_exhausted(event)
                raise SystemExit

        await scene.world.configure(DAILY)
        scene.told = Exiting()
        scene.limiter = RateLimiter(scene.world.repo, hooks=scene.told)
        for amount in 701, 702:
            await scene.use(400)
            await scene.reject(amount)
            scene.world.clock.advance(seconds=DAY_S)
        assert await scene.exhausted() == [(USER, 701), (USER, 702)]

    async def test_a_quota_is_exhausted_again_in_the_next_window(self, scene: Scene) -> None:
        for limit in DAILY, Limit.quota("tokens", 1000, after_first_use="12h"):
            await scene.world.configure(limit)
            scene.world.clock.advance(seconds=DAY_S)
            scene.told.exhausted.clear()
            for amount in 201, 202:
                await scene.use(800)
                await scene.reject(amount)
                await scene.exhausted()
                await scene.reject(300)
                scene.world.clock.advance(seconds=DAY_S)
            assert await scene.exhausted() == [(USER, 201), (USER, 202)], limit

    async def test_changes_by_hand_let_a_quota_be_exhausted_again(self, scene: Scene) -> None:
        await scene.world.configure(DAILY)
        await scene.use(1000)
        await scene.reject(1)
        assert await scene.exhausted() == [(USER, 1)]
        await scene.world.repo.top_up(USER, API, {"tokens": 1})
        await scene.reject(2)
        assert await scene.exhausted() == [(USER, 1), (USER, 2)]
        await scene.world.repo.reset_bucket(USER, API)
        await scene.use(1000)
        await scene.reject(3)
        assert await scene.exhausted() == [(USER, 1), (USER, 2), (USER, 3)]
        await scene.world.configure(Limit.quota("tokens", 1003, per="day"))
        await scene.reject(4)
        assert await scene.exhausted() == [(USER, 1), (USER, 2), (USER, 3), (USER, 4)]
        await scene.world.configure(Limit.quota("tokens", 1003, per="day", hold_ttl=60))
        await scene.reject(5)
        assert await scene.exhausted() == [(USER, 1), (USER, 2), (USER, 3), (USER, 4)]

    async def test_held_amounts_exhaust_and_a_debt_does(self, scene: Scene) -> None:
        await scene.world.configure(DAILY, RPM)
        async with scene.limiter.acquire(USER, API, {"tokens": 900}):
            await scene.reject(101)
        assert await scene.exhausted() == [(USER, 101)]
        assert scene.told.exhausted[0].used == 900
        scene.world.clock.advance(seconds=DAY_S)
        await scene.use(1001, 1)
        await scene.reject(1, name="rpm")  # does not name the quota, which is in debt
        assert await scene.exhausted() == [(USER, 101), (USER, 0)]
        assert scene.told.exhausted[1].available == -1

    async def test_what_is_no_rejection_by_a_quota_exhausts_none(self, scene: Scene) -> None:
        repo = scene.world.repo
        await scene.world.configure(DAILY, RPM)
        await scene.use(900)
        await scene.reject(1001)  # never fits
        await scene.reject(101, name="rpm")
        async with scene.limiter.acquire(USER, API, {"tokens": 101}, mode="shadow"):
            pass
        await repo.set_mode(API, mode="deny")
        await scene.reject(100)
        await repo.set_mode(API, mode="enforce")
        await scene.limiter.pause(USER, API, 60)
        await scene.reject(100)
        await scene.world.configure(Limit.quota("tokens", 1000, per="day", soft=True))
        scene.world.clock.advance(seconds=60)
        await scene.use(200)
        assert await scene.exhausted() == []

    async def test_the_budget_of_a_parent_is_exhausted_under_its_id(self, scene: Scene) -> None:
        repo = scene.world.repo
        await scene.world.configure(DAILY)
        await repo.set_limits("team", [Limit.quota("tokens", 100, per="day")])
        await repo.create_entity(USER, parent_id="team", cascade=True)
        await scene.use(90)
        await scene.reject(20)
        await scene.reject(20)
        assert await scene.exhausted() == [("team", 20)]

    async def test_calls_that_wait_or_take_several_resources_exhaust(self, scene: Scene) -> None:
        repo = scene.world.repo
        await scene.world.configure(DAILY)
        await scene.use(1000)
        await scene.reject(1, timeout=5)
        assert await scene.exhausted() == [(USER, 1)]
        await repo.set_resource_defaults("all", [Limit.quota("total", 10, per="day")])
        await repo.set_resource_defaults("other", [RPM])
        async with scene.limiter.acquire(USER, "all", {"total": 8}):
            for _ in range(2):
                joint = scene.limiter.acquire(USER, "other", {"rpm": 1}, also={"all": {"total": 3}})
                with pytest.raises(RateLimitExceeded):
                    await joint.__aenter__()
        assert await scene.exhausted() == [(USER, 1), (USER, 3)]
        assert scene.told.exhausted[1].resource == "all"

    async def test_limits_of_a_call_are_exhausted_beside_the_configured_one(
        self, scene: Scene
    ) -> None:
        await scene.world.configure(DAILY)
        own = [Limit.quota("tokens", 10, per="day")]
        async with scene.limiter.acquire(USER, API, {"tokens": 8}, own):
            await scene.reject(5, limits=own)
            await scene.reject(6, limits=own)
        assert await scene.exhausted() == [(USER, 5)]
        assert scene.told.exhausted[0].amount == 10

    async def test_an_exhausted_quota_is_logged_with_advice(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "zae_limiter")
        await scene.world.configure(DAILY)
        await scene.use(900)
        await scene.reject(101)
        await scene.exhausted()
        [logged] = [each for each in caplog.records if "exhausted" in each.getMessage()]
        assert logged.levelname == "WARNING"
        assert logged.getMessage() == (
            "'user-1' on 'api' is exhausted: tokens: 100 of 1,000 left this day (UTC), "
            "101 requested; next window 2026-03-11 00:00 +00:00; for more in this window: "
            "zae-limiter bucket top-up user-1 api -a tokens=AMOUNT"
        )

    # --- logs

    async def test_a_threshold_is_logged_with_advice(
        self, scene: Scene, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "zae_limiter")
        await scene.world.configure(DAILY)
        await scene.world.take(tokens=800)  # without hooks
        await scene.raised()
        await scene.use(200)
        await scene.raised()
        logged = [record for record in caplog.records if "threshold" in record.getMessage()]
        assert [record.levelname for record in logged] == ["INFO", "INFO", "WARNING"]
        assert logged[-1].getMessage() == (
            "'user-1' on 'api' has reached a threshold of tokens: 100 % of 1,000 used this day "
            "(UTC), 1,000 with calls in flight; next window 2026-03-11 00:00 +00:00; for more in "
            "this window: zae-limiter bucket top-up user-1 api -a tokens=AMOUNT"
        )


class ThresholdCallerContract(Contract):
    """Many callers and clients: one of them is told."""

    @pytest.fixture
    async def crowd(self, world: World) -> Scene:
        return Scene(world)

    async def test_one_of_many_callers_is_told(self, crowd: Scene) -> None:
        await crowd.world.configure(DAILY)
        await agather([partial(crowd.use, 50)] * 20)
        assert sorted(await crowd.raised()) == [50, 80, 100]

    async def test_one_of_many_clients_is_told(self, crowd: Scene) -> None:
        await crowd.world.configure(DAILY)
        limiters = [crowd.limiter]
        for _ in range(3):
            other = await crowd.world.open()
            crowd.repositories.append(other)
            limiters.append(RateLimiter(other, hooks=crowd.told))

        async def use(limiter: RateLimiter) -> None:
            async with limiter.acquire(USER, API, {"tokens": 50}):
                pass

        for round_of in range(1, 3):
            await agather([partial(use, limiter) for limiter in limiters * 5])
            assert sorted(await crowd.raised()) == sorted([50, 80, 100] * round_of)
            await crowd.world.repo.reset_bucket(USER, API)
            crowd.world.clock.advance(seconds=60)  # clients may have cached their rejections

    async def test_one_of_many_clients_finds_a_quota_exhausted(self, crowd: Scene) -> None:
        await crowd.world.configure(DAILY)
        limiters = [crowd.limiter]
        for _ in range(3):
            other = await crowd.world.open()
            crowd.repositories.append(other)
            limiters.append(RateLimiter(other, hooks=crowd.told))
        await crowd.use(995)

        async def use(limiter: RateLimiter) -> None:
            with contextlib.suppress(RateLimitExceeded):
                async with limiter.acquire(USER, API, {"tokens": 10}):
                    pass

        await agather([partial(use, limiter) for limiter in limiters * 5])
        assert await crowd.exhausted() == [(USER, 10)]

    async def test_a_threshold_that_a_dead_client_has_reached_is_raised_by_the_next(
        self, crowd: Scene
    ) -> None:
        """The client dies between its charge and its mark."""
        await crowd.world.configure(DAILY, RPM)
        await _charge_and_die(crowd.world.repo, {"tokens": 900})
        assert await crowd.raised() == []
        async with crowd.limiter.acquire(USER, API, {"rpm": 1}):
            pass
        assert await crowd.raised() == [50, 80]

    async def test_errors_of_a_hook_do_not_reach_callers(self, crowd: Scene) -> None:
        class Broken(Hooks):
            def on_threshold(self, event: ThresholdEvent) -> None:
                raise Failure

        await crowd.world.configure(DAILY)
        crowd.limiter = RateLimiter(crowd.world.repo, hooks=[Broken(), crowd.told])
        await crowd.use(800, estimate=500)
        assert await crowd.raised() == [50, 80]

    async def test_a_client_that_is_closed_has_told_of_its_thresholds(self, crowd: Scene) -> None:
        await crowd.world.configure(DAILY)
        await crowd.use(900)
        await crowd.world.repo.close()
        assert crowd.told.percents() == [50, 80]


async def _charge_and_die(repository: Repository, amounts: dict[str, Any]) -> None:
    """Charge a bucket as a client does that dies before it looks at thresholds."""
    charging = repository.charging
    scope = await AcquireCall(USER, API, amounts, None, repository, _unused).resolve()
    now_ms = charging.clock()
    request = ChargeRequest(scope.charges(amounts, now_ms), charging.clock, now_ms)
    outcome = await charging.buckets.charge(charging.namespace_id, request, Receipt())
    assert isinstance(outcome, Grant)


async def _unused() -> Repository:
    raise AssertionError("the repository is open")

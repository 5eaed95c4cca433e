"""Ends of blocks in an outage. What was certainly not made is repeated until the store takes it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from zae_limiter._async.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.hooks import Hooks, SettleEvent
from zae_limiter.models.limit import Limit
from zae_limiter.testing.outage import outage as injected_outage
from zae_limiter_contract._async.base import Contract, Outage
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, USER, Failure, World, failing, stored
from zae_limiter_contract.stopwatch import Stopwatch

BUDGET = Limit.budget("usd", 10, per="month", hold_ttl=600)
RPM = Limit.per_minute("rpm", 100)
ESTIMATE: dict[str, Any] = {"usd": "0.01", "rpm": 1}
ALL, TEAM = "all-models", "team"
CLOSE_S = 0.2


class Told(Hooks):
    """Remembers the ends of blocks that it was told of."""

    def __init__(self) -> None:
        self.events: list[SettleEvent] = []

    def on_settle(self, event: SettleEvent) -> None:
        self.events.append(event)


class FaultyScene:
    """A client of a store that can fail, with a hook; ``world`` is another client."""

    def __init__(self, world: World, repo: Repository, outage: Outage) -> None:
        self.world = world
        self.repo = repo
        self.outage = outage
        self.told = Told()
        self.limiter = RateLimiter(repo, hooks=self.told)

    async def end(self, consume: dict[str, Any], cost: dict[str, Any], **options: Any) -> None:
        """Make a call whose end the store does not take."""
        fault = self.outage()
        async with self.limiter.acquire(USER, API, consume, **options) as lease:
            await lease.settle(cost)
            fault.__enter__()
        assert self.repo.pending_settlements == 1
        fault.__exit__(None, None, None)

    async def stored(self) -> None:
        """Wait until the background has stored all ends."""
        await stored(self.repo)
        assert self.repo.lost_settlements == 0

    async def used(self, entity_id: str = USER, resource: str = API) -> tuple[Any, Any]:
        """Return what is used of the budget, and what is held."""
        availability = await self.world.limiter.check_availability(entity_id, resource)
        (status,) = [
            each
            for each in availability.statuses
            if (each.limit_name, each.entity_id) == ("usd", entity_id)
        ]
        return status.used, status.held


class PendingEndContract(Contract):
    """The faults are real; an engine without any has those of ``zae_limiter.testing``."""

    @pytest.fixture
    def any_outage(self, engine_spec: EngineSpec) -> Callable[[Repository], Outage]:
        """Return the outage of a repository.

        As with ``outage``, the spec sees in ``request.fixturenames`` that it has to prepare one.
        """

        def outage_of(repository: Repository) -> Outage:
            return lambda: engine_spec.outage() or injected_outage(repository)

        return outage_of

    @pytest.fixture
    async def faulty(
        self,
        engine_spec: EngineSpec,
        world: World,
        any_outage: Callable[[Repository], Outage],
    ) -> FaultyScene:
        await world.configure(BUDGET, RPM)
        await world.take(usd=0, rpm=0)
        repo = world.repo
        if engine_spec.shared:
            repo = await world.open_hasty()
        faulty = FaultyScene(world, repo, any_outage(repo))
        await faulty.limiter.available(USER, API)
        return faulty

    async def test_a_cost_above_the_estimate_is_stored_when_the_store_is_back(
        self, faulty: FaultyScene
    ) -> None:
        await faulty.end(ESTIMATE, {"usd": 5, "rpm": 3})
        assert faulty.told.events == []
        await faulty.stored()
        assert await faulty.used() == (5, 0)
        assert await faulty.world.spent("rpm") == 3
        (event,) = faulty.told.events
        assert (event.cost, event.lost) == ({"usd": 5, "rpm": 3}, False)

    async def test_several_ends_of_one_outage_are_all_stored(self, faulty: FaultyScene) -> None:
        fault = faulty.outage()
        blocks = [faulty.limiter.acquire(USER, API, {"usd": "0.01"}) for _ in range(4)]
        for block in blocks:
            await (await block.__aenter__()).settle(usd=2)
        fault.__enter__()
        for block in blocks:
            await block.__aexit__(None, None, None)
        assert faulty.repo.pending_settlements == 4
        fault.__exit__(None, None, None)
        await faulty.stored()
        assert await faulty.used() == (8, 0)
        assert [event.lost for event in faulty.told.events] == [False] * 4

    async def test_what_a_cheap_call_did_not_use_is_given_back_when_the_store_is_back(
        self, faulty: FaultyScene
    ) -> None:
        await faulty.end({"usd": 9, "rpm": 90}, {"usd": 1, "rpm": 1})
        await faulty.stored()
        assert await faulty.used() == (1, 0)
        await faulty.world.take(usd=9)

    async def test_a_failed_block_is_refunded_when_the_store_is_back(
        self, faulty: FaultyScene
    ) -> None:
        fault = faulty.outage()
        with failing():
            async with faulty.limiter.acquire(USER, API, {"usd": 9, "rpm": 90}):
                fault.__enter__()
                raise Failure
        fault.__exit__(None, None, None)
        await faulty.stored()
        assert await faulty.used() == (0, 0)
        assert await faulty.world.spent("rpm") == 0
        assert [(event.failed, event.lost) for event in faulty.told.events] == [(True, False)]

    async def test_a_cost_whose_hold_has_expired_becomes_a_debt_once(
        self, faulty: FaultyScene
    ) -> None:
        fault = faulty.outage()
        async with faulty.limiter.acquire(USER, API, {"usd": 4}) as lease:
            await lease.settle(usd=6)
            fault.__enter__()
        faulty.world.clock.advance(seconds=901)  # a hold lives 1.5 times its TTL at most
        fault.__exit__(None, None, None)
        await faulty.stored()
        assert await faulty.used() == (6, 0)
        await faulty.world.take(usd=4)  # a write that charges returns what has expired
        assert await faulty.used() == (10, 0)
        with pytest.raises(RateLimitExceeded):
            await faulty.world.take(usd=1)

    async def test_both_buckets_of_a_cascade_get_the_cost(self, faulty: FaultyScene) -> None:
        world = faulty.world
        await world.repo.create_entity(TEAM)
        await world.repo.create_entity(USER, parent_id=TEAM, cascade=True)
        await faulty.repo.invalidate_config_cache()
        await world.take(usd=0)
        await faulty.limiter.available(USER, API)
        await faulty.end({"usd": "0.01"}, {"usd": 5})
        await faulty.stored()
        assert await faulty.used() == await faulty.used(TEAM) == (5, 0)

    async def test_all_resources_of_a_call_get_their_costs(self, faulty: FaultyScene) -> None:
        fault = faulty.outage()
        also: dict[str, dict[str, str]] = {ALL: {"usd": "0.02"}}
        async with faulty.limiter.acquire(USER, API, {"usd": "0.01"}, also=also) as lease:
            await lease.settle(usd=5)
            await lease.resource(ALL).settle(usd=6)
            fault.__enter__()
        assert faulty.repo.pending_settlements == 1
        fault.__exit__(None, None, None)
        await faulty.stored()
        assert await faulty.used() == (5, 0)
        assert await faulty.used(resource=ALL) == (6, 0)
        assert {event.resource: event.lost for event in faulty.told.events} == {
            API: False,
            ALL: False,
        }

    async def test_slots_are_free_when_the_store_is_back(self, faulty: FaultyScene) -> None:
        world = faulty.world
        await world.configure(Limit.concurrent("parallel", 1, lease_ttl=60))
        await faulty.repo.invalidate_config_cache()
        await faulty.limiter.available(USER, API)
        fault = faulty.outage()
        async with faulty.limiter.acquire(USER, API, {}):
            fault.__enter__()
        fault.__exit__(None, None, None)
        await faulty.stored()
        await world.take()

    async def test_slots_that_have_expired_meanwhile_are_not_freed_again(
        self, faulty: FaultyScene
    ) -> None:
        world = faulty.world
        await world.configure(Limit.concurrent("parallel", 1, lease_ttl=60))
        await faulty.repo.invalidate_config_cache()
        await faulty.limiter.available(USER, API)
        fault = faulty.outage()
        async with faulty.limiter.acquire(USER, API, {}):
            fault.__enter__()
        world.clock.advance(seconds=61)
        fault.__exit__(None, None, None)
        async with world.acquire():
            await faulty.stored()
            await world.refusal()
        await world.take()

    async def test_closing_stores_what_is_left(self, faulty: FaultyScene) -> None:
        await faulty.end({"usd": "0.01"}, {"usd": 5})
        await faulty.repo.close()
        assert (faulty.repo.pending_settlements, faulty.repo.lost_settlements) == (0, 0)
        assert [event.lost for event in faulty.told.events] == [False]
        if faulty.repo is not faulty.world.repo:
            assert await faulty.used() == (5, 0)

    async def test_closing_in_an_outage_gives_up_in_time_and_says_what_was_not_stored(
        self, engine_spec: EngineSpec, faulty: FaultyScene, caplog: pytest.LogCaptureFixture
    ) -> None:
        fault = faulty.outage()
        async with faulty.limiter.acquire(USER, API, ESTIMATE) as lease:
            await lease.settle(usd=5)
            fault.__enter__()
        assert (faulty.repo.pending_settlements, faulty.repo.lost_settlements) == (1, 0)
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
        with Stopwatch() as watch:
            await faulty.repo.close(timeout=CLOSE_S)
        fault.__exit__(None, None, None)
        assert watch.within(CLOSE_S + 3 * engine_spec.moment_s)
        assert (faulty.repo.pending_settlements, faulty.repo.lost_settlements) == (0, 1)
        (said,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert "could not settle" in said.getMessage()
        assert "usd" in said.getMessage()
        (event,) = faulty.told.events
        assert event.cost["usd"] == Decimal(5)
        assert event.lost

    async def test_a_hook_that_raises_ends_no_repetition(self, faulty: FaultyScene) -> None:
        class Exiting(Told):
            def on_settle(self, event: SettleEvent) -> None:
                super().on_settle(event)
                raise SystemExit

        faulty.told = Exiting()
        faulty.limiter = RateLimiter(faulty.repo, hooks=faulty.told)
        fault = faulty.outage()
        blocks = [faulty.limiter.acquire(USER, API, {"usd": "0.01"}) for _ in range(2)]
        for block in blocks:
            await (await block.__aenter__()).settle(usd=2)
        fault.__enter__()
        for block in blocks:
            await block.__aexit__(None, None, None)
        fault.__exit__(None, None, None)
        await faulty.stored()
        assert len(faulty.told.events) == 2
        assert await faulty.used() == (4, 0)

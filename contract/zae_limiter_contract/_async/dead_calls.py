"""What a dead call held is nobody's usage: neither its entity's, nor that of parents."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter.models.usage import UsageSummary
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, USER, World, require_usage_history

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
USD = Limit.budget("usd", "10.00", per="day", hold_ttl=60)
TEAM = "team"


async def spend(world: World, amount: str, entity_id: str = USER) -> None:
    async with world.limiter.acquire(entity_id, API, {"usd": amount}):
        pass


async def die(world: World, amount: str, entity_id: str = USER) -> None:
    """Begin a call that never ends."""
    await world.limiter.acquire(entity_id, API, {"usd": amount}).__aenter__()


async def usd(world: World, entity_id: str | None) -> tuple[Any, Any]:
    """Return the usage of an entity, or of a resource, and the part through children."""
    summary: UsageSummary
    if entity_id is None:
        summary = await world.repo.get_usage_summary(resource=API)
    else:
        summary = await world.repo.get_usage_summary(entity_id, API)
    total, through = summary.total.get("usd", 0), summary.through_children.get("usd", 0)
    return Decimal(total), Decimal(through)


class DeadCallContract(Contract):
    """Calls whose processes have died cost nothing as soon as their holds have expired."""

    @pytest.fixture
    async def team(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        world.clock.set(int(NOON.timestamp() * 1000))
        await world.configure(USD)
        await world.repo.create_entity(TEAM)
        await world.repo.create_entity(USER, parent_id=TEAM, cascade=True)
        return world

    async def test_swept_holds_of_children_are_no_usage_of_their_parent(self, team: World) -> None:
        await die(team, "0.825")
        team.clock.advance(seconds=60)
        await spend(team, "0.100")  # returns what has expired
        assert await usd(team, None) == (Decimal("0.1"), Decimal("0.1"))
        assert await usd(team, TEAM) == (Decimal("0.1"), Decimal("0.1"))
        assert await usd(team, USER) == (Decimal("0.1"), 0)

    async def test_a_parent_s_own_charge_sweeps_what_its_children_held(self, team: World) -> None:
        await die(team, "0.825")
        team.clock.advance(seconds=60)
        await spend(team, "0.300", TEAM)
        await spend(team, "0.100")
        assert await usd(team, TEAM) == (Decimal("0.4"), Decimal("0.1"))
        assert await usd(team, None) == (Decimal("0.4"), Decimal("0.1"))

    async def test_what_has_expired_is_no_usage_before_the_next_write(self, team: World) -> None:
        await spend(team, "0.100")
        await die(team, "0.825")
        assert await usd(team, TEAM) == (Decimal("0.925"), Decimal("0.925"))
        team.clock.advance(seconds=60)
        assert await usd(team, TEAM) == (Decimal("0.1"), Decimal("0.1"))
        assert await usd(team, USER) == (Decimal("0.1"), 0)
        assert await usd(team, None) == (Decimal("0.1"), Decimal("0.1"))
        (hour,), _ = await team.repo.get_usage_snapshots(TEAM, API, window_type="hourly")
        assert hour.counters == hour.through_children == {"usd": Decimal("0.1")}
        ranking = await team.repo.get_top_usage("usd", "24h")
        found = [(each.entity_id, each.counters["usd"]) for each in ranking.consumers]
        assert found == [(USER, Decimal("0.1"))]
        states = await team.repo.get_buckets(TEAM, API)
        assert [each.total_consumed_milli for each in states] == [100_000_000]

    async def test_holds_that_end_with_their_window_are_no_usage_after_it(
        self, team: World
    ) -> None:
        await team.configure(Limit.budget("usd", "10.00", per="day", hold_ttl=None))
        await spend(team, "0.100")
        await die(team, "0.825")
        team.clock.advance(hours=11)
        assert await usd(team, TEAM) == (Decimal("0.925"), Decimal("0.925"))
        team.clock.advance(hours=1)
        assert await usd(team, TEAM) == (Decimal("0.1"), Decimal("0.1"))
        await spend(team, "0.200")
        assert await usd(team, TEAM) == (Decimal("0.3"), Decimal("0.3"))
        assert await usd(team, None) == (Decimal("0.3"), Decimal("0.3"))

    async def test_calls_of_both_kinds_are_settled_apart(self, team: World) -> None:
        async with team.limiter.acquire(TEAM, API, {"usd": "1"}) as own:
            async with team.limiter.acquire(USER, API, {"usd": "1"}) as of_child:
                await of_child.settle(usd="0.4")
            await own.settle(usd="0.2")
        assert await usd(team, TEAM) == (Decimal("0.6"), Decimal("0.4"))
        assert await usd(team, USER) == (Decimal("0.4"), 0)

    async def test_one_call_through_a_child_and_beside_it_is_held_apart(self, team: World) -> None:
        also: Any = {(TEAM, API): {"usd": "0.5"}}
        large: Any = {"usd": "0.3"}
        small: Any = {"usd": "0.03"}
        dead = team.limiter.acquire(USER, API, large, also=also)
        await dead.__aenter__()
        assert await usd(team, TEAM) == (Decimal("0.8"), Decimal("0.3"))
        team.clock.advance(seconds=60)
        async with team.limiter.acquire(USER, API, small, also=also) as leases:
            await leases.settle(usd="0.01")
        assert await usd(team, TEAM) == (Decimal("0.51"), Decimal("0.01"))
        assert await usd(team, None) == (Decimal("0.51"), Decimal("0.01"))

    async def test_a_renewed_call_of_a_child_is_not_counted_twice(self, team: World) -> None:
        call = team.limiter.acquire(USER, API, {"usd": "0.5"})
        lease = await call.__aenter__()
        team.clock.advance(seconds=30)
        await spend(team, "0.100")
        await lease.settle(usd="0.2")
        await call.__aexit__(None, None, None)
        assert await usd(team, None) == (Decimal("0.3"), Decimal("0.3"))

    async def test_a_reset_and_a_top_up_leave_the_usage_of_children(self, team: World) -> None:
        await die(team, "0.825")
        await spend(team, "0.100")
        team.clock.advance(hours=13)  # the next window
        added: Any = {"usd": "1"}
        await team.repo.top_up(TEAM, API, added)
        await team.repo.reset_bucket(TEAM, API)
        assert await usd(team, TEAM) == (Decimal("0.1"), Decimal("0.1"))
        assert await usd(team, None) == (Decimal("0.1"), Decimal("0.1"))

    async def test_another_calendar_counts_calls_of_children_at_their_ends(
        self, team: World
    ) -> None:
        async with team.limiter.acquire(USER, API, {"usd": "0.8"}) as lease:
            await team.configure(Limit.budget("usd", "10.00", per="month"))
            await spend(team, "0.1")
            assert await usd(team, TEAM) == (Decimal("0.1"), Decimal("0.1"))
            await lease.settle(usd="0.3")
        assert await usd(team, TEAM) == (Decimal("0.4"), Decimal("0.4"))
        assert await usd(team, None) == (Decimal("0.4"), Decimal("0.4"))

    async def test_a_rate_counts_calls_of_children_at_their_ends(self, team: World) -> None:
        tokens = Limit.quota("tokens", 1000, per="day")
        await team.configure(tokens)
        async with team.acquire(tokens=600) as lease:
            await team.configure(Limit.per_minute("tokens", 1000))
            await team.take(tokens=1)
            await team.configure(tokens)
            await team.take(tokens=1)
            await lease.settle(tokens=500)
        summary = await team.repo.get_usage_summary(resource=API)
        assert (summary.total, summary.through_children) == ({"tokens": 502}, {"tokens": 502})

    async def test_a_call_that_outlives_its_bucket_counts_its_cost_once(self, team: World) -> None:
        async with team.limiter.acquire(USER, API, {"usd": "0.8"}) as lease:
            await team.repo.delete_entity(USER)
            assert await usd(team, USER) == (0, 0)
            await team.repo.create_entity(USER, parent_id=TEAM, cascade=True)
            await spend(team, "0.1")
            await lease.settle(usd="0.3")
        assert await usd(team, USER) == (Decimal("0.4"), 0)
        assert await usd(team, None) == (Decimal("0.4"), Decimal("0.4"))

    async def test_a_dead_call_in_a_deleted_bucket_is_no_usage(self, team: World) -> None:
        await die(team, "0.825")
        await spend(team, "0.100")
        await team.repo.delete_entity(USER)
        team.clock.advance(seconds=60)
        assert await usd(team, USER) == (Decimal("0.1"), 0)

    async def test_a_dead_call_under_limits_of_its_own_is_no_usage(self, team: World) -> None:
        own = [Limit.quota("pages", 100, per="day", hold_ttl=60)]
        other = [Limit.quota("pages", 50, per="day", hold_ttl=60)]
        await team.acquire(limits=own, pages=60).__aenter__()
        for _ in range(2):
            team.clock.advance(hours=24 * 4)  # nobody needs the window any more
            async with team.acquire(limits=other, pages=10) as lease:
                await lease.settle(pages=5)
        assert (await team.repo.get_usage_summary(USER, API)).total["pages"] == 10
        assert (await team.repo.get_usage_summary(resource=API)).total["pages"] == 10

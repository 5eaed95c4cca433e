"""Usage counts every billionth of money exactly once, apart from tokens."""

from __future__ import annotations

from decimal import Decimal

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import API, USER, World, require_usage_history

TOKENS = Limit.per_minute("tpm", 1000)
DOLLARS = Limit.budget("usd", "1.00", per="month")
TINY = Decimal("0.000000001")


class MoneyUsageContract(Contract):
    """Money is reported in currency units, with its currency."""

    @pytest.fixture
    def billed(self, engine_spec: EngineSpec, world: World) -> World:
        require_usage_history(engine_spec)
        return world

    async def spend(self, world: World, amount: str, entity_id: str = USER) -> None:
        consume: dict[str, int | str] = {"tpm": 1, "usd": amount}
        async with world.limiter.acquire(entity_id, API, consume):
            pass

    async def test_hours_days_and_totals_have_money_to_the_billionth(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        for _ in range(3):
            await self.spend(billed, "0.000000001")
            await self.spend(billed, "0.012345678")
            billed.clock.advance(hours=1)
        await self.spend(billed, "0.5")
        hours, _ = await billed.repo.get_usage_snapshots(USER, API, window_type="hourly")
        spent = Decimal("0.012345679")
        assert [each.counters["usd"] for each in hours] == [spent, spent, spent, Decimal("0.50")]
        assert [each.counters["tpm"] for each in hours] == [2, 2, 2, 1]
        assert all(each.currencies == {"usd": "USD"} for each in hours)
        (day,), _ = await billed.repo.get_usage_snapshots(USER, API, window_type="daily")
        assert day.counters == {"tpm": 7, "usd": 3 * spent + Decimal("0.5")}
        summary = await billed.repo.get_usage_summary(USER, window_type="hourly")
        assert summary.total == day.counters
        assert summary.average["usd"] == Decimal("0.134259259")
        assert summary.currencies == {"usd": "USD"}

    async def test_a_settlement_in_a_later_hour_counts_there(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        async with billed.limiter.acquire(USER, API, {"usd": "0.30"}) as lease:
            billed.clock.advance(hours=1)
            await lease.settle(usd="0.000000007")
        hours, _ = await billed.repo.get_usage_snapshots(USER, API, window_type="hourly")
        assert sum(each.counters["usd"] for each in hours) == 7 * TINY

    async def test_the_refund_to_a_deleted_bucket_is_money_too(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        async with billed.limiter.acquire(USER, API, {"usd": "0.30"}) as lease:
            await billed.repo.delete_entity(USER)
            await lease.settle(usd="0.10")
        summary = await billed.repo.get_usage_summary(USER)
        assert summary.total["usd"] == Decimal("0.10")
        assert summary.currencies == {"usd": "USD"}

    async def test_a_parent_counts_the_money_of_its_children_apart(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        await billed.repo.create_entity("team")
        await billed.repo.create_entity(USER, parent_id="team", cascade=True)
        await self.spend(billed, "0.000000003")
        (hour,), _ = await billed.repo.get_usage_snapshots("team", API, window_type="hourly")
        assert hour.counters == hour.through_children == {"tpm": 1, "usd": 3 * TINY}
        assert hour.own == {"tpm": 0, "usd": 0}
        summary = await billed.repo.get_usage_summary(resource=API)
        assert summary.total == {"tpm": 1, "usd": 3 * TINY}
        assert summary.through_children == {"tpm": 1, "usd": 3 * TINY}

    async def test_the_largest_spenders_are_ranked(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        for entity_id, amount in ("a", "0.02"), ("b", "0.3"), ("c", "0.000000001"):
            await self.spend(billed, amount, entity_id)
        ranking = await billed.repo.get_top_usage("usd", "24h")
        found = [(each.entity_id, each.counters["usd"]) for each in ranking.consumers]
        assert found == [("b", Decimal("0.30")), ("a", Decimal("0.02")), ("c", TINY)]
        assert all(each.currencies == {"usd": "USD"} for each in ranking.consumers)

    async def test_two_currencies_of_one_name_are_not_added_up(self, billed: World) -> None:
        dollars = Limit.budget("cost", "1.00", per="month")
        euros = Limit.budget("cost", "1.00", currency="EUR", per="month")
        await billed.repo.set_resource_defaults("a", [dollars])
        await billed.repo.set_resource_defaults("b", [euros])
        await billed.repo.set_resource_defaults("c", [Limit.per_minute("cost", 10)])
        for resource, amount in ("a", "0.1"), ("b", "0.2"), ("c", 3):
            async with billed.limiter.acquire(USER, resource, {"cost": amount}):
                pass
        summary = await billed.repo.get_usage_summary(USER)
        assert summary.total == {
            "cost (USD)": Decimal("0.10"),
            "cost (EUR)": Decimal("0.20"),
            "cost": 3,
        }
        assert summary.currencies == {"cost (USD)": "USD", "cost (EUR)": "EUR"}

    async def test_a_rejected_amount_is_reported_in_currency_units(self, billed: World) -> None:
        await billed.configure(TOKENS, DOLLARS)
        await self.spend(billed, "0.9")
        assert not await billed.granted(usd="0.1234")  # type: ignore[arg-type]
        await self.spend(billed, "0.01")  # rejections are stored with the next write
        state = await billed.repo.get_bucket(USER, API, "usd")
        assert state is not None
        assert state.asked == Decimal("0.1234")
        (hour,), _ = await billed.repo.get_usage_snapshots(USER, API, window_type="hourly")
        assert hour.rejected_amounts == {"usd": Decimal("0.1234")}

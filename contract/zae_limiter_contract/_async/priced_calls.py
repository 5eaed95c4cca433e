"""LLM calls with prices: their cost in money is charged to a budget."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import llm
from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.llm_calls import ESTIMATE, LIMITS, events, words
from zae_limiter_contract._async.world import API, USER, Failure, World, failing

PRICES = """
version: 2026-11-01
models:
  gpt-4: {input: 3, cached_input: 0.3, cache_write: 3.75, output: 15}
  free: {input: 0, output: 0}
  exact: {input: 0.0001, output: 0.0003}
  long: {input: 1, output: 2, above: [{tokens: 1000, input: 10, output: 20}]}
"""
DOLLARS = Limit.budget("usd", "1.00", per="month")
PRICED = {"model": "gpt-4", "messages": [], "max_tokens": 5_000}
ESTIMATED = Decimal("0.0753")  # of 100 tokens of input and 5,000 of output


class PricedCallContract(Contract):
    """A call with prices charges its estimate to a budget, and settles its true cost."""

    @pytest.fixture
    async def paying(self, world: World) -> World:
        """A world with a budget of one dollar."""
        await world.configure(*LIMITS[1:], DOLLARS)
        return world

    @pytest.fixture
    def prices(self, tmp_path: Path) -> llm.Prices:
        path = tmp_path / "prices.yaml"
        path.write_text(PRICES)
        return llm.Prices.load(path)

    def priced_call(self, world: World, prices: Any, **options: Any) -> Any:
        options = {"request": PRICED, "estimate": ESTIMATE, "count": words, **options}
        return llm.reserve(world.limiter, USER, API, prices=prices, **options)

    async def dollars_left(self, world: World) -> Decimal:
        found = await world.limiter.available(USER, API)
        return Decimal(found["usd"])

    async def test_a_budget_of_all_models_pays_for_a_call(
        self, world: World, prices: llm.Prices
    ) -> None:
        await world.configure(*LIMITS[1:])
        await world.limiter.set_resource_defaults("all-models", [DOLLARS])
        options = {"budget_resource": "all-models", "also": {"all-models": {}}}
        async with self.priced_call(world, prices, **options) as call:
            left = await world.limiter.available(USER, "all-models")
            assert left == {"usd": 1 - ESTIMATED}
            call.record_usage(llm.Usage(1_000, 200, cached_tokens=800, cache_write_tokens=100))
        left = await world.limiter.available(USER, "all-models")
        assert left == {"usd": 1 - Decimal("0.003915")}

    async def test_no_tokens_are_taken_if_the_shared_budget_is_spent(
        self, world: World, prices: llm.Prices
    ) -> None:
        await world.configure(*LIMITS[1:])
        spent = Limit.budget("usd", "0.01", per="month")
        await world.limiter.set_resource_defaults("all-models", [spent])
        before = await world.limiter.available(USER, API)
        with pytest.raises(RateLimitExceeded):
            async with self.priced_call(world, prices, budget_resource="all-models"):
                pass
        assert await world.limiter.available(USER, API) == before

    async def test_prices_do_not_replace_further_resources(
        self, paying: World, prices: llm.Prices
    ) -> None:
        await paying.limiter.set_resource_defaults("search", [Limit.per_minute("rpm", 60)])
        async with self.priced_call(paying, prices, also={"search": {"rpm": 1}}) as call:
            assert await self.dollars_left(paying) == 1 - ESTIMATED
            call.record_usage(llm.Usage(1_000, 200))
        assert await paying.limiter.available(USER, "search") == {"rpm": 59}

    async def test_a_call_holds_its_estimate_and_pays_its_cost(
        self, paying: World, prices: llm.Prices
    ) -> None:
        async with self.priced_call(paying, prices) as call:
            assert await self.dollars_left(paying) == 1 - ESTIMATED
            call.record_usage(llm.Usage(1_000, 200, cached_tokens=800, cache_write_tokens=100))
        cost = Decimal("0.003915")
        assert call.usage.cost == llm.Cost(cost, "USD", prices.version)
        assert call.lease.consumed["usd"] == cost
        assert await self.dollars_left(paying) == 1 - cost

    async def test_a_stream_without_usage_and_a_failure_pay_as_much_as_their_tokens(
        self, paying: World, prices: llm.Prices
    ) -> None:
        async with self.priced_call(paying, prices) as call:
            async for _ in call.stream(events()):
                pass
        delivered = Decimal("0.000345")  # 100 tokens of input, and three words
        assert await self.dollars_left(paying) == 1 - delivered
        with failing():
            async with self.priced_call(paying, prices):
                raise Failure
        failed = Decimal("0.0003")
        assert await self.dollars_left(paying) == 1 - delivered - failed
        async with self.priced_call(paying, prices) as call:
            call.refund()
        assert await self.dollars_left(paying) == 1 - delivered - failed

    async def test_fractions_of_a_billionth_are_rounded_up_once_per_call(
        self, paying: World, prices: llm.Prices
    ) -> None:
        price = prices.of("exact")  # a token of input costs a tenth of a billionth
        async with self.priced_call(paying, price) as call:
            for _ in range(11):
                call.record_usage(llm.Usage(1, 0))
        assert call.usage.cost is not None
        assert call.usage.cost.amount == Decimal("0.000000002")
        assert await self.dollars_left(paying) == 1 - Decimal("0.000000002")

    async def test_a_long_input_has_its_price_in_the_request_that_has_it(
        self, paying: World, prices: llm.Prices
    ) -> None:
        async with self.priced_call(paying, prices.of("long")) as call:
            call.record_usage(llm.Usage(1_000, 0))
            call.record_usage(llm.Usage(1_000, 0))
            call.record_usage(llm.Usage(1_001, 100))
        assert await self.dollars_left(paying) == 1 - Decimal("0.01401")

    async def test_a_price_of_zero_is_a_price(self, paying: World, prices: llm.Prices) -> None:
        async with self.priced_call(paying, prices, request={"model": "free"}) as call:
            call.record_usage(llm.Usage(10, 7))
        assert call.usage.cost == llm.Cost(Decimal("0.00"), "USD", prices.version)
        assert await self.dollars_left(paying) == 1
        assert await paying.spent("tpm") == 17

    async def test_a_call_that_costs_too_much_is_not_made(
        self, paying: World, prices: llm.Prices
    ) -> None:
        with pytest.raises(RateLimitExceeded) as rejected:
            async with self.priced_call(paying, prices, estimate=llm.Estimate(0, 100_000)):
                raise AssertionError("the budget is smaller")
        assert [each.limit_name for each in rejected.value.violations] == ["usd"]
        assert await self.dollars_left(paying) == 1
        assert await paying.spent("tpm") == 0

    async def test_an_unknown_model_or_budget_is_refused(
        self, paying: World, prices: llm.Prices
    ) -> None:
        with pytest.raises(ValidationError, match="did you mean 'gpt-4'"):
            self.priced_call(paying, prices, request={"model": "gpt-44"})
        with pytest.raises(ValidationError, match="is not a limit"):
            async with self.priced_call(paying, prices, budget="euros"):
                pass
        with pytest.raises(ValidationError, match="is not a budget"):
            async with self.priced_call(paying, prices, budget="tpm", meter={}):
                pass
        await paying.configure(*LIMITS[1:])
        with pytest.raises(ValidationError, match=r"no limit of .* is a budget in USD"):
            async with self.priced_call(paying, prices):
                pass

    async def test_the_budget_of_a_parent_pays(self, world: World, prices: llm.Prices) -> None:
        await world.repo.create_entity("team")
        await world.repo.create_entity(USER, parent_id="team", cascade=True)
        await world.repo.set_limits("team", [DOLLARS], API)
        await world.repo.set_limits(USER, LIMITS[1:], API)
        async with self.priced_call(world, prices) as call:
            call.record_usage(llm.Usage(1_000, 0))
        found = await world.limiter.available("team", API)
        assert found["usd"] == 1 - Decimal("0.003")

    async def test_the_audit_log_has_the_prices_once(
        self, paying: World, prices: llm.Prices
    ) -> None:
        for _ in range(3):
            async with self.priced_call(paying, prices) as call:
                call.record_usage(llm.Usage(1, 1))
        found = await paying.repo.get_audit_events("$SYSTEM")
        loaded = [event for event in found if event.action == "prices_loaded"]
        assert [event.details for event in loaded] == [dict(prices.file._asdict())]
        assert loaded[0].details["version"].startswith("2026-11-01+")

"""Write units of usage by active hours a day, as the documentation says, to the hundredth.

One client takes once in each active hour. Measured is the fourth day: rows of earlier days are
completed, and the client knows that an aggregator is at work. All units beyond one for each acquire
are those of usage.
"""

import asyncio
from pathlib import Path

import pytest

from tests.integration.dynamodb.capacity.world import world_of
from tests.support.dynamodb.streams import bucket_record
from tests.support.dynamodb.trees import AsyncTree
from zae_limiter import Limit
from zae_limiter_aggregator.handler import close, handler

DOCUMENT = Path(__file__).parents[4] / "docs/reference/dynamodb-units.md"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ID = "5f0c2d1e-7a3b-4c8d-9e6f-0123456789ab"  # as long as most ids
AMOUNTS = {"rpm": 100, "tpm": 1_000_000, "itpm": 800_000, "otpm": 200_000, "tpd": 10**6, "ipm": 3}
MOST = {  # extra units per active hour, by limits and active hours a day
    (2, 1): 5.0,
    (2, 3): 3.3,
    (2, 16): 2.8,
}


@pytest.fixture
async def world(stack, proxy, endpoint, clock):
    async with world_of(AsyncTree(), stack, proxy, endpoint, clock) as world:
        yield world


@pytest.fixture
def aggregator(world, proxy, monkeypatch):
    """Deliver a turned bucket to the function, as the stream does."""
    monkeypatch.setenv("TABLE_NAME", world.table)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", proxy.url)
    numbers = iter(range(10**6))

    def deliver():
        record = bucket_record(world.item(ID), next(numbers))
        assert handler({"Records": [record]}) == {"batchItemFailures": []}

    yield deliver
    close()


def documented(limits, hours):
    """The figures of a row: without and with the aggregator."""
    start = f"| {limits} limits, {hours} active hour{'s' if hours > 1 else ''} a day |"
    (line,) = [each for each in DOCUMENT.read_text().splitlines() if each.startswith(start)]
    _, without, with_it, *_ = [cell.strip() for cell in line.strip("|").split("|")]
    return float(without), float(with_it)


async def extra_units(world, proxy, limits, hours, after_turn):
    amounts = dict(list(AMOUNTS.items())[:limits])
    await world.admin.set_system_defaults([Limit.per_minute(name, 10**7) for name in amounts])
    client = await world.client(config_cache_ttl=10**6)
    start_ms = world.clock() // DAY_MS * DAY_MS
    for day in range(4):
        with proxy.measure() as seen:
            for hour in range(hours):
                world.clock.set(start_ms + day * DAY_MS + hour * HOUR_MS)
                await client.take(ID, **amounts)
                if after_turn is not None:
                    await asyncio.to_thread(after_turn)
    return round((seen.wcu + seen.refused - hours) / hours, 2)


@pytest.mark.each_value_once
@pytest.mark.parametrize("hours", [1, 3, 16])
@pytest.mark.parametrize("limits", [2, 6])
@pytest.mark.parametrize("aggregated", [False, True], ids=["clients", "aggregator"])
async def test_an_active_hour_costs_the_documented_units(
    world, proxy, aggregator, limits, hours, aggregated
):
    after_turn = aggregator if aggregated else None
    extra = await extra_units(world, proxy, limits, hours, after_turn)
    assert extra == documented(limits, hours)[aggregated]
    assert extra <= MOST.get((limits, hours), 5.0)


async def test_a_key_with_one_call_a_day_costs_six_units(world, proxy, aggregator):
    assert 1 + await extra_units(world, proxy, 2, 1, aggregator) <= 6

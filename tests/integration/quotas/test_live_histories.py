"""Random histories of quotas on real stores agree with a ledger that knows no store."""

import os

import pytest

from tests.support.quotas.live import LiveWorld

STEPS = 40
HISTORIES = int(os.environ.get("ZAEL_QUOTA_LIVE_HISTORIES", "100"))


async def run(seed, url, steps=STEPS):
    world = await LiveWorld(seed, url).open()
    try:
        return await world.run(steps)
    finally:
        await world.close()


@pytest.mark.parametrize("engine", ["memory", "sqlite", "dynamodb"])
async def test_the_store_shows_what_the_ledger_has(request, engine):
    world = await run(1, request.getfixturevalue(f"{engine}_url"))
    assert world.admitted > 5


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("engine", ["memory", "sqlite", "dynamodb"])
async def test_the_store_shows_what_the_ledger_has_in_many_histories(
    request, engine, record_property
):
    url, admitted, rejected, steps = request.getfixturevalue(f"{engine}_url"), 0, 0, 0
    for seed in range(100, 100 + HISTORIES):
        world = await run(seed, url, 120)
        admitted, rejected = admitted + world.admitted, rejected + world.rejected
        steps += world.steps
    assert rejected > 0
    record_property("histories, steps, admitted, rejected", (HISTORIES, steps, admitted, rejected))

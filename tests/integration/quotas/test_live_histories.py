"""Random histories of quotas on real stores agree with a ledger that knows no store.

``DEFECTS`` are ledgers and worlds with a wrong rule: the histories must tell each of them from the
stores.
"""

import os

import pytest

from tests.support.quotas import live_defects
from tests.support.quotas.book import Book
from tests.support.quotas.live import LiveWorld, Wrong
from zae_limiter import ValidationError

STEPS = 40
HISTORIES = int(os.environ.get("ZAEL_QUOTA_LIVE_HISTORIES", "100"))


MOST_SEEDS = 60  # until a defect is found
DEFECTS = [
    live_defects.HoldsWhatIsSettled,
    live_defects.ForgetsSettlements,
    live_defects.LivesAgain,
    live_defects.ReturnsEstimates,
    live_defects.BeginsFull,
    live_defects.BeginsWithCallsOnly,
    live_defects.BeginsWithEachDebt,
    live_defects.CountsExpiredHolds,
    live_defects.LosesThePlaceInLine,
    live_defects.GivesAnythingBack,
]


async def run(seed, url, steps=STEPS, world=LiveWorld, book=Book):
    world = await world(seed, url, book=book).open()
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


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
async def test_a_planted_defect_is_found(defect, memory_url):
    with pytest.raises((Wrong, ValidationError)):  # or the store refuses the step
        await run_with(defect, memory_url)


async def run_with(defect, url):
    """Run histories with a defect, until one of them finds it."""
    parts = {"world": defect} if issubclass(defect, LiveWorld) else {"book": defect}
    for seed in range(MOST_SEEDS):
        await run(seed, f"{url}-{seed}", 60, **parts)

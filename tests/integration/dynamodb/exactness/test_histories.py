"""Random adversarial histories of 1 to 6 clients, each write checked in exact arithmetic."""

import pytest

from tests.integration.dynamodb.exactness.histories import History


@pytest.mark.fast("2", "5")
@pytest.mark.parametrize("seed", range(6))
async def test_a_random_history_gives_out_what_is_there_and_no_more(world, proxy, seed):
    history = History(world, proxy, seed)
    await history.run(steps=60)
    assert history.counts["admitted"]
    assert history.counts["writes"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [*range(6, 12), *range(100, 250)])
async def test_many_more_random_histories_give_out_what_is_there_and_no_more(world, proxy, seed):
    await History(world, proxy, seed).run(steps=100)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1000, 1020))
async def test_a_long_random_history_gives_out_what_is_there_and_no_more(world, proxy, seed):
    await History(world, proxy, seed).run(steps=600)

"""Limits that change while a bucket is split."""

import pytest

from tests.integration.dynamodb.sharding.world import rpm
from zae_limiter.admission.shards.tree import Shard


@pytest.mark.each_value_once
@pytest.mark.parametrize("trusts_s", [0, 60], ids=["looks before", "finds out on the way"])
@pytest.mark.parametrize("on_unavailable", ["block", "allow"])
async def test_a_large_charge_with_outdated_limits_is_made_with_those_that_hold(
    world, on_unavailable, trusts_s
):
    """Outdated limits are looked up again; they are no outage, so nothing is let through unpaid."""
    outdated = await world.split_bucket(rpm(100), n=4, rejection_cache_ttl=trusts_s)
    await outdated.take(rpm=1)
    other = await world.client()
    await other.repo.set_system_defaults([rpm(200)])
    await other.take(rpm=1)
    before = world.level()
    async with outdated.acquire(rpm=60, on_unavailable=on_unavailable) as lease:
        assert lease.consumed == {"rpm": 60}
    assert world.level() == before - 60_000


async def test_bringing_new_limits_to_all_shards_is_not_counted_as_charges(world):
    client = await world.split_bucket(rpm(100), n=4)
    await client.take(rpm=1)
    before = client.repo.get_stats()
    await client.repo.set_system_defaults([rpm(200)])
    await client.take(rpm=1)
    after = client.repo.get_stats()
    assert {item["p_rpm"]["S"] for item in world.items().values()} == {"200::60:0"}
    assert (after.charges - before.charges, after.granted - before.granted) == (1, 1)


async def test_shards_of_which_one_has_limits_of_an_earlier_call_are_merged_all_the_same(world):
    """Such a limit is dropped where the bucket is written to and it is full, so only there."""
    client = await world.split_bucket(rpm(100), n=2)
    await client.take(rpm=10, limits=[rpm(50)])
    await client.repo.set_system_defaults([rpm(200)])
    await client.take(rpm=1)
    world.clock.advance(hours=1)
    limits = [{name for name in item if name.startswith("t_")} for item in world.items().values()]
    assert limits[0] != limits[1]
    assert await client.merge(Shard(0, 2))
    assert world.shards() == {0: 1}
    assert world.levels() == {0: 200_000}

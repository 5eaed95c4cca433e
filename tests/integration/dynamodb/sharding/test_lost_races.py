"""Others always come first, and there is always enough."""

import pytest

from tests.integration.dynamodb.sharding.world import rpm


class Elsewhere:
    """Just before a write reaches a shard, others move all tokens to the other of two shards."""

    def __init__(self, world, proxy, milli):
        self.count = 0
        self._world, self._milli = world, milli
        proxy.fault("close", operation="UpdateItem", when=self._meanwhile)

    def _meanwhile(self, exchange):
        number = int(exchange.body["Key"]["PK"]["S"].rpartition("#")[2])
        self._world.leave({number: 0, 1 - number: self._milli})
        self.count += 1
        return False  # nothing befalls the request itself


async def test_tokens_that_move_before_each_write_are_found_since_all_shards_are_judged_at_once(
    world, proxy
):
    client = await world.split_bucket(rpm(100), n=2, proxy=proxy)
    await client.refusal(rpm=101)
    others = Elsewhere(world, proxy, 50_000)
    await client.take(rpm=20)
    assert others.count > 1
    assert world.level() == 30_000


async def test_a_charge_that_loses_all_races_is_refused_with_what_is_in_all_shards(world, proxy):
    client = await world.split_bucket(rpm(100), n=2, proxy=proxy)
    await client.refusal(rpm=101)
    Elsewhere(world, proxy, 10_000)
    error = await client.refusal(rpm=20)
    (violation,) = error.violations
    assert (violation.available, violation.requested) == (10, 20)
    assert world.level() == 10_000


@pytest.mark.parametrize("amount", [1, 50])
async def test_a_charge_after_lost_races_is_counted_once(world, proxy, amount):
    client = await world.split_bucket(rpm(100), n=2, proxy=proxy)
    await client.refusal(rpm=101)
    before = client.repo.get_stats()
    Elsewhere(world, proxy, 50_000)
    await client.take(rpm=amount)
    after = client.repo.get_stats()
    assert (after.charges - before.charges, after.granted - before.granted) == (1, 1)

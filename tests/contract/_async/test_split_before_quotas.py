"""Quotas and soft limits of a bucket that was split while it had rates only."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from zae_limiter_contract._async.quotas import QuotaContract, at
from zae_limiter_contract._async.thresholds import ThresholdContract
from zae_limiter_contract._async.world import API, USER, World

from tests.contract._async.splitting import split_dynamodb
from zae_limiter.models.limit import Limit

EARLY = datetime(2026, 3, 9, tzinfo=UTC)  # before the moments of the tests
RATE = Limit.per_minute("calls", 1000)


@pytest.mark.slow  # the sample in test_split_buckets.py splits behind the first charge of a quota
class TestSplitBeforeQuotas(QuotaContract, ThresholdContract):
    """The groups about quotas; every bucket has three shards before it gets its limits."""

    # The rate stays in the buckets, and these tests look at all of their limits.
    test_a_cascade_charges_the_quota_of_the_parent = None
    test_quotas_are_stored_and_read = None

    @pytest.fixture
    def engine_spec(self, request, dynamodb_table):
        return split_dynamodb(dynamodb_table, request.fixturenames)

    @pytest.fixture
    async def world(self, engine_spec, clock) -> AsyncIterator[World]:
        world = World(engine_spec, clock)
        try:
            await world.start()
            begun_ms = clock()
            at(world, EARLY)
            for entity_id in (USER, "team", "key-1", "key-2"):
                await world.take(entity_id, API, limits=[RATE], calls=1)
            clock.set(begun_ms)
            yield world
        finally:
            await world.close()

    async def test_a_soft_limit_rejects_no_call_that_is_gathered(self, world: World) -> None:
        soft_rate = Limit.per_minute("rpm", 2, soft=True)
        soft_quota = Limit.quota("tokens", 10, per="day", soft=True)
        await world.configure(soft_rate, soft_quota, Limit.per_minute("tpm", 1000))
        await world.take(rpm=10, tokens=100)
        await world.take(rpm=1, tokens=5, tpm=900)  # more than a shard holds
        assert await world.limiter.available(USER, API) == {"rpm": -9, "tokens": -95, "tpm": 100}
        assert await world.spent("rpm") == 11

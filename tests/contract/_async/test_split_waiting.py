"""Waiting for a bucket that has been split: approximate in order and moment, exact in amount."""

from functools import partial

import pytest
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.waiting import Line, until
from zae_limiter_contract.together import agather

from tests.contract._async.splitting import split_dynamodb
from zae_limiter.models.limit import Limit
from zae_limiter.runtime.calls import apause

RPS = Limit.per_second("rps", 20)
STEP_MS = 50


class TestWaitingForShards(Contract):
    """A bucket in shards of a half and two quarters."""

    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table)

    @pytest.fixture
    async def line(self, world):
        await world.configure(RPS)
        await world.take(rps=20)
        return Line(world)

    async def run_until(self, line, calls, entered):
        """Move the clock in steps until so many callers have gone on."""

        def all_asleep():
            return line.world.clock.waiting + len(line.entered) >= len(calls)

        async def move():
            await until(all_asleep)
            while len(line.entered) < entered:
                line.world.clock.advance(ms=STEP_MS)
                await apause()  # those that are due wake up
                # sync: __import__("time").sleep(0.001)
                await until(all_asleep)

        await agather([*calls, move])

    async def test_all_callers_are_served_and_never_more_than_has_accrued(self, line):
        calls = [partial(line.wait, number) for number in range(10)]
        await self.run_until(line, calls, 10)
        assert await line.world.spent("rps") == 30
        for count, moment_ms in enumerate(sorted(line.entered.values()), start=1):
            assert count <= 20 * moment_ms / 1000 + 0.01
        # 10 tokens accrue in 0.5 s; a shard may be behind, by its share of them.
        assert max(line.entered.values()) <= 1500

    async def test_over_half_of_every_share_waits_until_it_can_be_gathered(self, line):
        await self.run_until(line, [partial(line.wait, "large", 15)], 1)
        assert 750 <= line.entered["large"] <= 1000
        assert await line.world.spent("rps") == 35

    async def test_what_cannot_fit_by_its_deadline_is_rejected_at_once(self, line):
        await line.wait("small", 2, timeout=0.05)
        await line.wait("large", 15, timeout=0.5)
        assert sorted(line.rejected) == ["large", "small"]
        assert await line.world.spent("rps") == 20

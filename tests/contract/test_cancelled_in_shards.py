"""A caller that is cancelled gives its tokens back to the shard in which it waited."""

import asyncio

import pytest
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.waiting import Line, until

from tests.contract._async.splitting import HalvedSpec, split_dynamodb
from zae_limiter.models.limit import Limit

RPS = Limit.per_second("rps", 20)


class TestCancelledInShards(Contract):
    """A bucket in two halves, each of which brings a token every 100 ms."""

    @pytest.fixture
    def engine_spec(self, dynamodb_table):
        return split_dynamodb(dynamodb_table, spec=HalvedSpec)

    async def test_only_the_callers_behind_it_in_its_shard_move_up(self, world):
        """In the other one its tokens would be there at once, before they have accrued."""
        await world.configure(RPS)
        await world.take(rps=20)
        line, tasks = Line(world), {}

        async def arrive(caller, rps):
            waiting = world.clock.waiting
            tasks[caller] = asyncio.create_task(line.wait(caller, rps))
            await until(lambda: world.clock.waiting > waiting)

        await arrive("cancelled", 3)  # due in the first half after 300 ms
        await arrive("other half", 5)  # due after 500 ms
        await arrive("behind", 1)  # due in the first half after 400 ms
        tasks["cancelled"].cancel()
        await asyncio.wait([tasks["cancelled"]])
        await until(lambda: world.clock.waiting == 2)
        await arrive("later", 3)  # its image shows what was given back
        for moment_ms, expected in [
            (99, []),
            (100, ["behind"]),
            (399, ["behind"]),
            (400, ["behind", "later"]),
            (499, ["behind", "later"]),
            (500, ["behind", "later", "other half"]),
        ]:
            world.clock.set(line.started_ms + moment_ms)
            for _ in range(5):
                await asyncio.sleep(0.001)
            await until(lambda expected=expected: len(line.entered) >= len(expected))
            assert list(line.entered) == expected
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert await world.spent("rps") == 29

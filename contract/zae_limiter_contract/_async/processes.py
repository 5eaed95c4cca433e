"""Several processes on one store."""

from __future__ import annotations

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter_contract._async.base import Contract
from zae_limiter_contract._async.child import Job
from zae_limiter_contract._async.world import USER, World
from zae_limiter_contract.together import in_processes

CHILD = "zae_limiter_contract._async.child"
PROCESSES, TRIES, CAPACITY = 3, 60, 70


class ProcessContract(Contract):
    """All processes together get exactly as many grants as there are tokens."""

    @pytest.fixture
    def shared_world(self, world: World) -> World:
        if not world.spec.capabilities.shared_between_processes:
            pytest.skip("this engine lives in one process")
        return world

    # sync: @pytest.mark.slow  # the processes of the other tree do the same
    @pytest.mark.parametrize("at_once", [pytest.param(1, marks=pytest.mark.slow), 10])
    async def test_processes_win_exactly_as_often_as_there_are_tokens(
        self, shared_world: World, at_once: int
    ) -> None:
        world = shared_world
        await world.configure(Limit.per_minute("rpm", CAPACITY))
        job = Job(world.spec, world.clock(), USER, TRIES, at_once)
        granted = [int(answer) for answer in in_processes(CHILD, [job] * PROCESSES)]
        assert sum(granted) == CAPACITY
        assert await world.tokens() == 0
        assert await world.spent() == CAPACITY

    # sync: @pytest.mark.slow  # the processes of the other tree do the same
    async def test_processes_share_the_limit_of_a_parent(self, shared_world: World) -> None:
        world = shared_world
        await world.configure(Limit.per_minute("rpm", CAPACITY))
        keys = [f"key-{number}" for number in range(PROCESSES)]
        for key in keys:
            await world.repo.create_entity(key, parent_id="team", cascade=True)
        jobs = [Job(world.spec, world.clock(), key, TRIES, 5) for key in keys]
        granted = [int(answer) for answer in in_processes(CHILD, jobs)]
        assert sum(granted) == CAPACITY
        for key, count in zip(keys, granted, strict=True):
            assert await world.spent("rpm", key) == count
        assert await world.tokens("rpm", "team") == 0

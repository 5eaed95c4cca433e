"""Fixtures that every group of the suite uses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import World


class Contract:
    """The base of all groups. A subclass defines the fixture ``engine_spec``."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def world(self, engine_spec: EngineSpec, clock: FakeClock) -> AsyncIterator[World]:
        world = World(engine_spec, clock)
        try:
            await world.start()
            yield world
        finally:
            await world.close()

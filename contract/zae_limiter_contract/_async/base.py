"""Fixtures that every group of the suite uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

import pytest

from zae_limiter.testing.clock import FakeClock
from zae_limiter_contract._async.spec import EngineSpec
from zae_limiter_contract._async.world import World, require_outage

Outage = Callable[[], AbstractContextManager[None]]


class Contract:
    """The base of all groups. A subclass defines the fixture ``engine_spec``."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def outage(self, engine_spec: EngineSpec) -> Outage:
        """Blocks in which no charge is answered; an engine without outages skips the test.

        All tests with outages request this fixture. So ``engine_spec`` can see in
        ``request.fixturenames`` whether it has to prepare one.
        """
        require_outage(engine_spec)
        return lambda: require_outage(engine_spec)

    @pytest.fixture
    async def world(self, engine_spec: EngineSpec, clock: FakeClock) -> AsyncIterator[World]:
        world = World(engine_spec, clock)
        try:
            await world.start()
            yield world
        finally:
            await world.close()

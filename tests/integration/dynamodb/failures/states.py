"""Buckets to break something at: each state leads to another kind of write."""

import pytest

from zae_limiter import Limit

TEN = Limit.per_minute("rpm", 10)


async def absent(world, client):
    """It is made by the write."""
    await client.repo.set_system_defaults([TEN])
    await client.limiter.available("user-1", "api")  # reads the configuration
    return 10


async def partly_used(world, client):
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    return 6


async def overfull(world, client):
    await client.repo.set_system_defaults([TEN])
    await client.take(rpm=4)
    world.clock.advance(seconds=45)  # the cached configuration is not renewed before 48 s
    return 10


STATES = pytest.mark.parametrize("state", [absent, partly_used, overfull])

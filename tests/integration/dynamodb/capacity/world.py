"""A table, processes that use it, and short words for what tests say often."""

from contextlib import asynccontextmanager

import pytest

from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.testing.dynamodb.tables import store_url

USER, PARENT, API = "user-1", "team-1", "api"
RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)


class Client:
    """One process: it knows nothing of what others have seen."""

    def __init__(self, repo, limiter):
        self.repo = repo
        self.limiter = limiter

    def acquire(self, entity_id=USER, **consume):
        return self.limiter.acquire(entity_id, API, consume)

    async def take(self, entity_id=USER, **consume):
        """An acquire that must be granted."""
        async with self.acquire(entity_id, **consume):
            pass

    async def refused(self, entity_id=USER, **consume):
        """An acquire that must be refused."""
        with pytest.raises(RateLimitExceeded) as caught:
            await self.take(entity_id, **consume)
        return caught.value


class World:
    """``admin`` goes past the proxy, so that nothing it does is measured."""

    def __init__(self, tree, stack, proxy, clock):
        self.tree = tree
        self.stack = stack
        self.proxy = proxy
        self.clock = clock
        self._opened = []

    async def open(self, url, **settings):
        settings.setdefault("request_timeout", 20)  # a busy machine is no outage
        repo = await self.tree.open(
            url=store_url(self.stack, url), provision="table", clock=self.clock, **settings
        )
        self._opened.append(repo)
        return repo

    async def client(self, *, speculative_writes=True, **settings):
        repo = await self.open(self.proxy.url, **settings)
        return Client(repo, self.tree.limiter(repo, speculative_writes=speculative_writes))

    async def close(self):
        for repo in self._opened:
            await repo.close()


@asynccontextmanager
async def world_of(tree, stack, proxy, endpoint, clock):
    world = World(tree, stack, proxy, clock)
    try:
        world.admin = await world.open(endpoint)
        yield world
    finally:
        await world.close()

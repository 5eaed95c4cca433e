"""A table of the test behind a proxy that counts what its clients cost."""

from contextlib import asynccontextmanager

from tests.support.dynamodb import world as base
from tests.support.dynamodb.world import API, PARENT, USER, Client
from zae_limiter import Limit

__all__ = ["API", "PARENT", "RPM", "TPM", "USER", "World", "world_of"]

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6000)


class World(base.World):
    """``admin`` goes past the proxy, so that nothing it does is measured."""

    def __init__(self, tree, table, proxy, endpoint, clock):
        super().__init__(table, endpoint, "default", clock=clock, tree=tree)
        self.proxy = proxy

    async def open(self, proxy=None, **settings):
        settings.setdefault("request_timeout", 20)  # a busy machine is no outage
        return await super().open(proxy, **settings)

    async def client(self, *, speculative_writes=True, **settings):
        """One process, with the settings that users have: it knows nothing of the others."""
        repo = await self.open(self.proxy, **settings)
        return Client(repo, self.tree.limiter(repo, speculative_writes=speculative_writes))


@asynccontextmanager
async def world_of(tree, table, proxy, endpoint, clock):
    world = World(tree, table, proxy, endpoint, clock)
    try:
        world.admin = await world.open()
        yield world
    finally:
        await world.close()

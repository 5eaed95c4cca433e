import pytest

from tests.integration.dynamodb.capacity.trees import AsyncTree, SyncTree
from tests.integration.dynamodb.sharded.world import World


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, used from the async tree."""
    world = World(AsyncTree(), stack, endpoint, unique_name)
    await world.begin()
    yield world
    await world.close()


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def either(request, endpoint, stack, unique_name):
    """The same in each of the trees."""
    world = World(request.param(), stack, endpoint, unique_name)
    await world.begin()
    yield world
    await world.close()

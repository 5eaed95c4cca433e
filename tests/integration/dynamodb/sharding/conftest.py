import pytest

from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.trees import AsyncTree, SyncTree


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, used from the async tree."""
    world = World(stack, endpoint, unique_name)
    await world.begin()
    yield world
    await world.close()


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def either(request, endpoint, stack, unique_name):
    """The same in each of the trees."""
    world = World(stack, endpoint, unique_name, tree=request.param())
    await world.begin()
    yield world
    await world.close()

import pytest

from tests.integration.dynamodb.hours.world import World
from tests.support.dynamodb.trees import AsyncTree, SyncTree


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def either(request, endpoint, stack, unique_name):
    """A namespace of the test, in each of the trees."""
    world = World(stack, endpoint, unique_name, tree=request.param())
    await world.begin()
    yield world
    await world.close()


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """The same in the async tree alone."""
    world = World(stack, endpoint, unique_name)
    await world.begin()
    yield world
    await world.close()

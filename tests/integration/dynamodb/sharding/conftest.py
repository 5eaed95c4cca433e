import pytest

from tests.integration.dynamodb.sharding.world import World
from tests.support.dynamodb.trees import AsyncTree, SyncTree


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, used from the async tree."""
    async with World(stack, endpoint, unique_name) as world:
        yield world


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def either(request, endpoint, stack, unique_name):
    """The same in each of the trees."""
    async with World(stack, endpoint, unique_name, tree=request.param()) as world:
        yield world

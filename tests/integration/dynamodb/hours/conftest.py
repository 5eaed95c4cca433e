import pytest

from tests.integration.dynamodb.hours.world import World
from tests.support.dynamodb.trees import AsyncTree, SyncTree


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def either(request, endpoint, stack, unique_name):
    """A namespace of the test, in each of the trees."""
    async with World(stack, endpoint, unique_name, tree=request.param()) as world:
        yield world


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """The same in the async tree alone."""
    async with World(stack, endpoint, unique_name) as world:
        yield world

import pytest

from tests.support.dynamodb.trees import AsyncTree, SyncTree
from tests.support.dynamodb.world import World


@pytest.fixture(params=[AsyncTree, SyncTree], ids=["async", "sync"])
async def world(request, endpoint, stack, unique_name):
    """A namespace of the test in each of the trees, with a clock that stands still."""
    world = World(stack, endpoint, unique_name, tree=request.param())
    yield world
    await world.close()

import pytest

from tests.integration.dynamodb.shard_regressions.world import World


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, with a clock that stands still."""
    world = World(stack, endpoint, unique_name)
    yield world
    await world.close()

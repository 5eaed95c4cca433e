import pytest

from tests.integration.dynamodb.exactness.world import World
from zae_limiter.testing.dynamodb.tables import store_url, temporary_table


@pytest.fixture(scope="session")
def stack(endpoint):
    """A table for all tests of this folder: each has a namespace of its own."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with temporary_table(endpoint) as name:
            yield name


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, with a clock that stands still."""
    world = World(stack, endpoint, unique_name)
    yield world
    await world.close()


@pytest.fixture
def sync_url(endpoint, stack, monkeypatch, unique_name):
    """The URL of the table; the namespace comes from the environment."""
    monkeypatch.setenv("ZAEL_NAMESPACE", unique_name)
    return store_url(stack, endpoint)

from functools import cache

import boto3
import botocore.config
import pytest

from tests.support.dynamodb import Proxy, shared_endpoint
from tests.support.dynamodb.recording import RecordingLoop
from tests.support.dynamodb.tables import temporary_table
from tests.support.dynamodb.world import World
from tests.support.permissions import within_policies

# Any server for tests takes them.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def endpoint():
    """The URL of a server for all tests."""
    return shared_endpoint()


@pytest.fixture
def proxy():
    """A proxy before it that no other test uses."""
    with Proxy(shared_endpoint()) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def stack(endpoint):
    """A table for all tests that have a namespace of their own."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        with temporary_table(endpoint) as name:
            yield name


@pytest.fixture(scope="session")
def stack_without_usage(endpoint):
    """The same, but usage is off: buckets expire as soon as they are full for long enough."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        with temporary_table(endpoint, usage_days=0) as name:
            yield name


@pytest.fixture
async def world(endpoint, stack, unique_name):
    """A namespace of the test, with a clock that stands still."""
    world = World(stack, endpoint, unique_name)
    yield world
    await world.close()


@cache
def boto_session():
    """One for all tests: each would read the description of the service again."""
    return boto3.session.Session(
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
    )


@pytest.fixture
def boto():
    """An independent client; it never tries again by itself."""
    clients = []

    def make(url):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, read_timeout=5, connect_timeout=5
        )
        client = boto_session().client("dynamodb", endpoint_url=url, config=config)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def table(endpoint, boto, unique_name):
    """The name of a table with nothing but a key and one index on ``G``."""
    client = boto(endpoint)
    client.create_table(
        TableName=unique_name,
        AttributeDefinitions=[
            {"AttributeName": "PK", "AttributeType": "S"},
            {"AttributeName": "G", "AttributeType": "S"},
        ],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-group",
                "KeySchema": [{"AttributeName": "G", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    yield unique_name
    client.delete_table(TableName=unique_name)


def pytest_asyncio_loop_factories():
    """Run async tests on a loop that sees which method sends a request."""
    return {"recording": RecordingLoop}


@pytest.fixture(autouse=True)
def _requests_stay_within_the_policies():
    """Whatever a test is about: no method may call what the policy of its role does not permit."""
    with within_policies():
        yield

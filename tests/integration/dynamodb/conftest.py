import boto3
import botocore.config
import pytest

from zae_limiter.testing.dynamodb import Proxy, shared_endpoint

REGION = "us-east-1"


@pytest.fixture(scope="session")
def endpoint():
    """The URL of a server for all tests."""
    return shared_endpoint()


@pytest.fixture
def proxy(endpoint):
    """A proxy before it that no other test uses."""
    with Proxy(endpoint) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    """Some that any server for tests takes."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def boto():
    """An independent client; it never tries again by itself."""
    clients = []

    def make(url):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, read_timeout=5, connect_timeout=5
        )
        client = boto3.session.Session().client("dynamodb", endpoint_url=url, config=config)
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

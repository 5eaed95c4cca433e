"""A table with a stream, and the handler as Lambda calls it."""

import secrets
from contextlib import closing

import pytest

from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter_aggregator.handler import close


@pytest.fixture
def streamed_table(credentials, endpoint, monkeypatch):
    """The name of a table with a stream; the environment is that of its function."""
    name = f"test-{secrets.token_hex(8)}"
    monkeypatch.setenv("TABLE_NAME", name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    with closing(DynamoClient(name, endpoint_url=endpoint, request_timeout=10)) as client:
        make_table(client, stream=True)
        yield name
        close()
        remove_table(client)

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def table():
    """The URL of an empty table on the local server."""
    with empty_table() as name:
        yield store_url(name, shared_endpoint())

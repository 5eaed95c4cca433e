import pytest

from tests.support.dynamodb.tables import store_url


@pytest.fixture
def sync_url(endpoint, stack, monkeypatch, unique_name):
    """The URL of the table; the namespace comes from the environment."""
    monkeypatch.setenv("ZAEL_NAMESPACE", unique_name)
    return store_url(stack, endpoint)

import pytest

from zae_limiter.testing.dynamodb.tables import temporary_table


@pytest.fixture
def dynamodb_table():
    """The name of an empty table, gone after the test."""
    with temporary_table() as name:
        yield name

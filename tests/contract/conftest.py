import pytest

from tests.support.dynamodb.tables import empty_table


@pytest.fixture
def dynamodb_table():
    """The name of an empty table."""
    with empty_table() as name:
        yield name

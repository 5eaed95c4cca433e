import pytest

from tests.support.dynamodb.recording import RecordingLoop
from tests.support.dynamodb.tables import empty_table
from tests.support.permissions import within_policies


@pytest.fixture
def dynamodb_table():
    """The name of an empty table."""
    with empty_table() as name:
        yield name


def pytest_asyncio_loop_factories():
    """Run async tests on a loop that sees which method sends a request."""
    return {"recording": RecordingLoop}


@pytest.fixture(autouse=True)
def _requests_stay_within_the_policies():
    """Whatever a test is about: no method may call what the policy of its role does not permit."""
    with within_policies():
        yield

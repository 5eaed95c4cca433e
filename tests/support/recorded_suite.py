"""A plugin of pytest: every test's requests are checked, wherever the test is.

Where a folder's own fixture of this name does so anyway, that one is used.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.support.dynamodb.recording import RecordingLoop
from tests.support.permissions import within_policies


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run async tests on a loop that sees which method sends a request."""
    return {"recording": RecordingLoop}


@pytest.fixture(autouse=True)
def _requests_stay_within_the_policies() -> Iterator[None]:
    with within_policies():
        yield

import uuid

import pytest


@pytest.fixture
def unique_name() -> str:
    """A name that no other test uses."""
    return f"test-{uuid.uuid4().hex}"

import gc
import os
import uuid
from pathlib import Path

import pytest

# Tests start hundreds of processes. Where Python is told to write no bytecode, each would compile
# the package again, which takes half as long as the rest of its start: a cache of their own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    cache = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(cache))


@pytest.fixture
def unique_name() -> str:
    """A name that no other test uses."""
    return f"test-{uuid.uuid4().hex}"


def pytest_collection_finish(session):
    """Take 11,000 collected tests and their libraries out of every later garbage collection."""
    gc.collect()
    gc.freeze()

import pytest

from tests.ops.cli.stores import empty_store


@pytest.fixture
def engine():
    """The engine of the test's store; overridden by ``on_both_engines``."""
    return "sqlite"


@pytest.fixture
def empty_url(engine, tmp_path):
    """The URL of an empty store."""
    with empty_store(engine, tmp_path) as url:
        yield url

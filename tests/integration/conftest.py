"""Empty stores of each engine, which may be opened several times."""

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import store_url, temporary_table


@pytest.fixture
def memory_url(tmp_path):
    return f"memory://{tmp_path.name}"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/limits.db?synchronous=OFF"


@pytest.fixture
def dynamodb_url(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")  # servers for tests take all
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with temporary_table() as name:
        yield store_url(name, shared_endpoint())

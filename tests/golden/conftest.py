"""The table of all scenarios: each has a namespace of its own in it."""

import pytest

from tests.golden.recording import CREDENTIALS
from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import temporary_table


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def golden_table():
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        with temporary_table(shared_endpoint()) as name:
            yield name

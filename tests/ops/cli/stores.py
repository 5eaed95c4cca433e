"""Stores to run commands on."""

import os
from contextlib import contextmanager

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 1000, burst=2000)

# For tests with a fixture that is a store or uses one.
on_both_engines = pytest.mark.parametrize("engine", ["sqlite", "dynamodb"])
# Commands see an engine through the same methods: the fast form of most tests has one of them.
sqlite_first = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("dynamodb", marks=pytest.mark.slow)]
)
dynamodb_first = pytest.mark.parametrize(
    "engine", [pytest.param("sqlite", marks=pytest.mark.slow), "dynamodb"]
)
on_dynamodb = pytest.mark.parametrize("engine", ["dynamodb"])


@contextmanager
def empty_store(engine, folder):
    """Yield the URL of an empty store: a missing file, or a new table."""
    if engine == "sqlite":
        yield f"sqlite:///{folder}/limits.db?synchronous=OFF"  # waits for no disk
        return
    with empty_table() as table:
        yield store_url(table, shared_endpoint())


def fill(url):
    """Store a little of everything."""
    with SyncRepository.open(url=url) as repository:
        repository.set_system_defaults([RPM], "allow", "setup")
        repository.set_resource_defaults("gpt-4", [RPM, TPM], "setup")
        repository.create_entity("project-1", "Project One", principal="setup")
        repository.create_entity("key-7", None, "project-1", True, {"team": "search"}, "setup")
        repository.set_limits("project-1", [Limit.per_minute("rpm", 100)], principal="setup")
        repository.set_limits("key-7", [Limit.per_minute("rpm", 10), TPM], "gpt-4", "setup")
        repository.register_namespace("tenant-a", "setup")
        limiter = SyncRateLimiter(repository)
        with limiter.acquire("key-7", "gpt-4", {"rpm": 3, "tpm": 500}) as lease:
            lease.adjust(tpm=2500)


def of_aws():
    """Return the variables that would lead a command to another store."""
    return [name for name in os.environ if name.startswith("AWS_")]

"""How the engines that come with the package are opened."""

from zae_limiter_contract._async.spec import EngineSpec

from tests.contract.engines import (
    DYNAMODB,
    MEMORY,
    MOMENT_S,
    SQLITE,
    DynamoOutage,
    SqliteOutage,
    dynamodb_url,
    sqlite_url,
)


class SqliteSpec(SqliteOutage, EngineSpec):
    """A file in a folder of the test."""


class DynamoSpec(DynamoOutage, EngineSpec):
    """A table of the test."""


def private_memory():
    return EngineSpec("memory://", MEMORY, shared=False)


def named_memory(name):
    return EngineSpec(f"memory://{name}", MEMORY)


def sqlite(folder):
    return SqliteSpec(sqlite_url(folder), SQLITE)


def dynamodb(table, fixtures=()):
    """``fixtures`` are those of the test, which says by them whether it needs an outage."""
    return DynamoSpec(dynamodb_url(table, fixtures), DYNAMODB, moment_s=MOMENT_S)

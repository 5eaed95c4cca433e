"""A new DynamoDB-compatible server with one table, for every sample.

The server that tests run on keeps all records of a table's stream and takes longer for a write the
more there are. So each sample has a server of its own, and its table has no stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

from benchmarks import cores
from tests.support.dynamodb import DynamoServer
from tests.support.dynamodb.server import ServerError, find_binary
from tests.support.dynamodb.tables import temporary_table

ENDPOINT = "ZAEL_TEST_ENDPOINT"
# A connection for each task, and no retries, since a charge must not be made twice.
CONFIG: dict[str, Any] = {"max_pool_connections": 256, "retries": {"total_max_attempts": 1}}
CLIENT_OPTIONS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "bench",
    "aws_secret_access_key": "bench",
}


class Place(NamedTuple):
    """A table, and the server it is on."""

    table: str
    endpoint: str


def what_is_missing() -> str:
    """Why there can be no server; nothing if there can."""
    try:
        if not os.environ.get(ENDPOINT):
            find_binary()
    except ServerError as error:
        return str(error)
    return ""


@contextmanager
def fresh_table(*, apart: bool = True) -> Iterator[Place]:
    """On a server of its own, or on the one that ``ZAEL_TEST_ENDPOINT`` names.

    ``apart`` keeps its clients off the server's core; not where those are many processes.
    """
    named = os.environ.get(ENDPOINT)
    if named:
        with _table(named) as place:
            yield place
        return
    with ExitStack() as stack:
        with cores.of_servers():
            server = stack.enter_context(DynamoServer())
        place = stack.enter_context(_table(server.url))
        if apart:
            stack.enter_context(cores.of_clients())
        yield place


def boto_client(endpoint: str) -> Any:
    config = Config(**CONFIG)
    return boto3.client("dynamodb", endpoint_url=endpoint, config=config, **CLIENT_OPTIONS)


@contextmanager
def _table(endpoint: str) -> Iterator[Place]:
    with temporary_table(endpoint) as table:
        client = boto_client(endpoint)
        client.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
        client.close()
        yield Place(table, endpoint)

"""A table that lives as long as a test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter.testing.dynamodb.shared import shared_endpoint


def store_url(stack: str, endpoint: str) -> str:
    """The URL that leads to a stack's table there."""
    return f"dynamodb://{stack}?endpoint_url={quote(endpoint, safe='')}"


@contextmanager
def temporary_table(endpoint: str | None = None) -> Iterator[str]:
    """The name of a new table on the shared server, or another one; removed in the end."""
    name = f"test-{secrets.token_hex(8)}"
    client = DynamoClient(name, endpoint_url=endpoint or shared_endpoint(), request_timeout=10)
    try:
        make_table(client, stream=False)  # the local server slows down with every record
        yield name
    finally:
        remove_table(client)
        client.close()

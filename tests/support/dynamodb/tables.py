"""Tables of tests: made for one test, or emptied and used by the next."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from tests.support.dynamodb.shared import shared_endpoint
from zae_limiter import InfrastructureNotFoundError
from zae_limiter._sync.engines.dynamodb.client import DynamoClient
from zae_limiter._sync.engines.dynamodb.provisioning import make_table, remove_table
from zae_limiter.dynamodb.table import new_version_record
from zae_limiter.items.stored.system import encode_document
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD

MOST_EMPTIED = 300  # items; to make another table is faster then
AT_ONCE = 25  # items of one BatchWriteItem
_free: defaultdict[str, list[str]] = defaultdict(list)  # names by endpoint


def store_url(stack: str, endpoint: str) -> str:
    """The URL that leads to a stack's table there."""
    return f"dynamodb://{stack}?endpoint_url={quote(endpoint, safe='')}"


@contextmanager
def temporary_table(endpoint: str | None = None, *, usage_days: int | None = None) -> Iterator[str]:
    """The name of a new table on the shared server, or another one; removed in the end.

    ``usage_days`` is how long it keeps usage; with 0 buckets expire as soon as they may.
    """
    name = f"test-{secrets.token_hex(8)}"
    client = DynamoClient(name, endpoint_url=endpoint or shared_endpoint(), request_timeout=10)
    try:
        make_table(client, stream=False)  # the local server slows down with every record
        if usage_days is not None:
            record = new_version_record(usage_days)
            item = encode_document(RESERVED_NAMESPACE, VERSION_RECORD, record)
            client.call("PutItem", {"Item": item})
        yield name
    finally:
        remove_table(client)
        client.close()


@contextmanager
def empty_table(endpoint: str | None = None) -> Iterator[str]:
    """The name of a table that holds nothing; another test may have used it before.

    A table with its indexes takes longer to make than most tests take to run.
    """
    place = endpoint or shared_endpoint()
    name = _free[place].pop() if _free[place] else _new_table(place)
    yield name
    with closing(DynamoClient(name, endpoint_url=place, request_timeout=10)) as client:
        if _emptied(client):
            _free[place].append(name)


def _new_table(endpoint: str) -> str:
    name = f"test-{secrets.token_hex(8)}"
    with closing(DynamoClient(name, endpoint_url=endpoint, request_timeout=10)) as client:
        make_table(client, stream=False)
    return name


def _emptied(client: DynamoClient) -> bool:
    """False if the table is gone, or holds too much to be emptied."""
    scan = {"ConsistentRead": True, "ProjectionExpression": "PK, SK"}
    try:
        answer = client.call("Scan", scan)
    except InfrastructureNotFoundError:  # the test has deleted it
        return False
    if "LastEvaluatedKey" in answer or len(answer["Items"]) > MOST_EMPTIED:
        remove_table(client)
        return False
    items = answer["Items"]
    for start in range(0, len(items), AT_ONCE):
        deletes = [{"DeleteRequest": {"Key": key}} for key in items[start : start + AT_ONCE]]
        body = {"RequestItems": {client.table: deletes}}
        assert not client.call("BatchWriteItem", body, repeatable=True).get("UnprocessedItems")
    return True

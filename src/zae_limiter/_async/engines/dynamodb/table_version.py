"""Read the version record of a table, and refuse a table of another form.

Every way to a table begins here, before anything is written to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import get_item
from zae_limiter.dynamodb import foreign
from zae_limiter.exceptions import InfrastructureNotFoundError, PermissionDenied
from zae_limiter.items.stored import keys, system
from zae_limiter.items.stored.attributes import Item
from zae_limiter.naming import DEFAULT_NAMESPACE, RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.store_errors import ConditionFailed
from zae_limiter.transport.errors import Refused

RECORD = keys.record(RESERVED_NAMESPACE, VERSION_RECORD)


async def read_version_record(client: DynamoClient) -> dict[str, Any] | None:
    """Return the version record; None for an empty table, or one with items of ours alone.

    Raises ForeignTableError for a table that this version has not written, and
    InfrastructureNotFoundError if there is no table. A table with a record costs one read unit. A
    table without a record costs a second unit for its first item, or more if that item has more
    than 4 KB.
    """
    try:
        record = await get_item(client, RECORD)
        item = await _any_item(client) if record is None else None
    except Refused as error:
        if error.code == "ValidationException":
            raise foreign.other_keys(client.table, error) from error
        raise
    if record is not None:
        return foreign.decode_version_record(record, client.table)
    if item is not None and not foreign.is_ours(item):
        raise foreign.foreign_items(item, client.table)
    return None


async def write_first_record(client: DynamoClient, record: dict[str, Any]) -> dict[str, Any]:
    """Write the version record of a new table, and return it.

    If another client has written a record since, that record stays and is returned.
    """
    item = system.encode_document(RESERVED_NAMESPACE, VERSION_RECORD, record)
    body = {"Item": item, "ConditionExpression": "attribute_not_exists(PK)"}
    try:
        await client.call("PutItem", body, repeatable=True)
    except ConditionFailed:
        return await read_version_record(client) or record
    return record


async def refuse_foreign_table(client: DynamoClient) -> None:
    """Raise ForeignTableError for a table of another form; a missing table is no error."""
    with suppress(InfrastructureNotFoundError):
        await read_version_record(client)


async def _any_item(client: DynamoClient) -> Item | None:
    """Return any item of the table; None if the table is empty.

    The policies of applications do not permit a Scan. Their holders read the registration of the
    default namespace instead, which a table in use has.
    """
    try:
        answer = await client.call("Scan", {"Limit": 1, "ConsistentRead": True})
    except PermissionDenied:
        return await get_item(client, keys.namespace_by_name(DEFAULT_NAMESPACE))
    items: list[Item] = answer["Items"]
    return items[0] if items else None

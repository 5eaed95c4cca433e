"""The table: one per stack, with four indexes, a stream and a TTL; and its version record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter._version import __version__, is_older
from zae_limiter.exceptions import VersionMismatchError
from zae_limiter.items.version_record import (
    AUDIT_DAYS,
    DEFAULT_USAGE_DAYS,
    SCHEMA_VERSION,
    USAGE_DAYS,
    how_to_migrate,
)
from zae_limiter.naming import check_stack_name

FIRST_VERSION = 1
TTL_ATTRIBUTE = "ttl"
WINDOWS_OFFERED = "snapshot_windows"  # the windows of usage queries, separated by commas
FUNCTIONS_VERSION = "lambda_version"  # the version of the functions' code
READY = frozenset({"ACTIVE", "UPDATING"})  # states in which items can be read and written


class Index(NamedTuple):
    """A global secondary index; ``sort`` is None if it has no sort key.

    An index that contains buckets projects keys only, since DynamoDB bills each write of a
    projected attribute a second time.
    """

    name: str
    partition: str
    sort: str | None
    projection: str = "KEYS_ONLY"


INDEXES = (
    Index("GSI1", "GSI1PK", "GSI1SK", "ALL"),  # children of a parent
    Index("GSI2", "GSI2PK", "GSI2SK"),  # buckets and usage of a resource
    Index("GSI3", "GSI3PK", "GSI3SK"),  # buckets of an entity, entities with limits of their own
    Index("GSI4", "GSI4PK", None),  # all items of a namespace
)


def table_name(stack: str) -> str:
    """Return the name of a stack's table, which is the name of the stack."""
    return check_stack_name(stack)


def create_request(table: str, *, stream: bool = True) -> dict[str, Any]:
    """Return the body of CreateTable."""
    names = ["PK", "SK", *(name for index in INDEXES for name in index[1:3] if name is not None)]
    request: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
        "KeySchema": _key_schema("PK", "SK"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition, index.sort),
                "Projection": {"ProjectionType": index.projection},
            }
            for index in INDEXES
        ],
    }
    if stream:
        request["StreamSpecification"] = {
            "StreamEnabled": True,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
    return request


def ttl_request(table: str) -> dict[str, Any]:
    """Return the body of UpdateTimeToLive."""
    return {
        "TableName": table,
        "TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL_ATTRIBUTE},
    }


def new_version_record(usage_days: int = DEFAULT_USAGE_DAYS) -> dict[str, Any]:
    """Return the version record of a new table: its schema, and its retention of usage."""
    return {
        "schema_version": SCHEMA_VERSION,
        "client_version": __version__,
        USAGE_DAYS: usage_days,
    }


def deployed_record(
    record: Mapping[str, Any] | None, usage_days: int, audit_days: int, windows: str
) -> dict[str, Any]:
    """Return the version record of a table that was just deployed.

    An existing table keeps its schema version, which only a migration changes.
    """
    kept = {**new_version_record(usage_days), **(record or {})}
    return {
        **kept,
        "client_version": __version__,
        USAGE_DAYS: usage_days,
        AUDIT_DAYS: audit_days,
        WINDOWS_OFFERED: windows,
    }


MIGRATING = "migrating_from"  # in the version record, until every item has the new form


def refuse_newer_deployment(record: Mapping[str, Any]) -> None:
    """Raise VersionMismatchError if a newer version has deployed the stack of the table."""
    for name in (FUNCTIONS_VERSION, "client_version"):
        deployed = record.get(name)
        if isinstance(deployed, str) and is_older(__version__, deployed):
            raise VersionMismatchError(
                __version__, deployed, "a newer version has deployed it; update zae-limiter first"
            )


def has_older_functions(record: Mapping[str, Any] | None) -> bool:
    """Return whether this version can replace the code of the table's functions."""
    return is_older((record or {}).get(FUNCTIONS_VERSION))


def unfinished_migration(record: Mapping[str, Any], table: str) -> str | None:
    """Return the warning about a table whose migration has not ended; None without a migration.

    The table can be used: acquires do not depend on the items that are still to be rewritten.
    """
    if MIGRATING not in record:
        return None
    return (
        f"the migration of table {table!r} from schema {record[MIGRATING]} has not ended, and "
        "listings miss items until it has; if it is not running, resume it: "
        f"{how_to_migrate(table)}"
    )


def version_of(record: Mapping[str, Any] | None) -> int:
    """Return the version that all items of a table have at least."""
    version = FIRST_VERSION
    if record is not None:
        version = record.get(MIGRATING, record.get("schema_version", FIRST_VERSION))
    return version if isinstance(version, int) else SCHEMA_VERSION + 1


def record_during_migration(record: Mapping[str, Any] | None, from_version: int) -> dict[str, Any]:
    """Return the version record that keeps older clients out while items are rewritten."""
    return {**_renewed(record), MIGRATING: from_version}


def record_after_migration(record: Mapping[str, Any] | None) -> dict[str, Any]:
    after = _renewed(record)
    after.pop(MIGRATING, None)
    return after


def _renewed(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a record with the versions of this client, and its other fields as they were."""
    versions = {"schema_version": SCHEMA_VERSION, "client_version": __version__}
    return {**new_version_record(), **(record or {}), **versions}


def _key_schema(partition: str, sort: str | None) -> list[dict[str, str]]:
    key_schema = [{"AttributeName": partition, "KeyType": "HASH"}]
    if sort is not None:
        key_schema.append({"AttributeName": sort, "KeyType": "RANGE"})
    return key_schema

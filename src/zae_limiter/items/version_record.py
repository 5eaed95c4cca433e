"""The version record of a table, which clients and functions read first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.shell_words import command_line

# A change that older clients would misread raises this number and adds a step to
# `dynamodb.migrations`.
SCHEMA_VERSION = 1
USAGE_DAYS = "usage_retention_days"  # in the version record, so that all clients agree
AUDIT_DAYS = "audit_retention_days"  # the same for audit events
DEFAULT_USAGE_DAYS = 90  # for a record without the field


def usage_days_of(record: Mapping[str, Any] | None) -> int:
    """Return the days for which all clients of a table keep usage; 0 if usage is turned off."""
    days = (record or {}).get(USAGE_DAYS, DEFAULT_USAGE_DAYS)
    is_number = isinstance(days, int) and not isinstance(days, bool) and days >= 0
    return days if is_number else DEFAULT_USAGE_DAYS


def audit_days_of(record: Mapping[str, Any] | None) -> int | None:
    """Return the days for which all clients keep audit events; None if the record has none."""
    days = (record or {}).get(AUDIT_DAYS)
    return days if isinstance(days, int) and not isinstance(days, bool) and days > 0 else None


def check_version_record(record: Mapping[str, Any], table: str) -> None:
    """Raise IncompatibleSchemaError for a table of a newer version, or of an older one."""
    version = refuse_newer_schema(record, table)
    if version < SCHEMA_VERSION:
        raise IncompatibleSchemaError(
            version,
            SCHEMA_VERSION,
            "stop all clients of the older version, then migrate the table once: "
            f"{how_to_migrate(table)}",
        )


def refuse_newer_schema(record: Mapping[str, Any], table: str) -> int:
    """Return the schema version of a table; raise IncompatibleSchemaError for a newer one."""
    version = record.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise IncompatibleSchemaError(
            version,
            SCHEMA_VERSION,
            f"nothing was changed; update zae-limiter to use table {table!r}",
        )
    return version


def how_to_migrate(table: str) -> str:
    """Return the command that migrates a table."""
    return command_line("upgrade", options=("--name", table))

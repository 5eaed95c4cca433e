"""The version record: the schema of a table, and by being there, that the table is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter._version import __version__
from zae_limiter.exceptions import IncompatibleSchemaError

SCHEMA_VERSION = 1


def new_record() -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "client_version": __version__}


def check_record(record: Mapping[str, Any], table: str) -> None:
    """Raise IncompatibleSchemaError for a table that only a newer version understands."""
    found = record.get("schema_version", SCHEMA_VERSION)
    if not isinstance(found, int) or found > SCHEMA_VERSION:
        raise IncompatibleSchemaError(
            found, SCHEMA_VERSION, f"update zae-limiter to use table {table!r}"
        )

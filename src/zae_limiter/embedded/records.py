"""Small documents kept by key."""

from __future__ import annotations

from typing import Any

from zae_limiter.embedded.tables import Tables


def get(tables: Tables, namespace_id: str, key: str) -> dict[str, Any] | None:
    return tables.get_record(namespace_id, key)


def put(tables: Tables, namespace_id: str, key: str, value: dict[str, Any]) -> None:
    tables.put_record(namespace_id, key, value)

"""Conversion between Python values and DynamoDB's attribute values. Integers stay integers."""

from __future__ import annotations

import json
from typing import Any

from zae_limiter.exceptions import RateLimiterUnavailable

Value = dict[str, Any]
Item = dict[str, Value]

REVISION = "rev"  # the id of the audit event of the change that wrote the item
DOCUMENT = "document"  # the only attribute of a document's item besides keys and revision
MAX_DOCUMENT_CHARACTERS = 390_000  # an item has at most 400 KB, its other attributes included

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def s(value: str) -> Value:
    return {"S": value}


def n(value: int) -> Value:
    return {"N": str(value)}


def flag(value: bool) -> Value:
    return {"BOOL": value}


def document(value: dict[str, Any]) -> Value:
    """Return a mapping as JSON text, so that items stay flat and keys may be any text."""
    return {"S": _encode(value)}


def text(value: Value) -> str:
    return str(value["S"])


def integer(value: Value) -> int:
    return int(value["N"])


def boolean(value: Value) -> bool:
    return bool(value["BOOL"])


def parsed(value: Value) -> dict[str, Any]:
    """Return the mapping that ``document`` was given."""
    mapping: dict[str, Any] = json.loads(text(value))
    return mapping


def optional_text(item: Item, name: str) -> str | None:
    value = item.get(name)
    return None if value is None else text(value)


def optional_integer(item: Item, name: str) -> int | None:
    value = item.get(name)
    return None if value is None else integer(value)


def damaged(what: str, item: Item, error: Exception) -> RateLimiterUnavailable:
    """Return the error for an item that cannot be decoded, with the item's key."""
    key = " ".join(text(item[part]) for part in ("PK", "SK") if part in item)
    return RateLimiterUnavailable(
        f"the item of a {what} is damaged ({key}); write it anew or delete it", cause=error
    )


def decode_document(item: Item) -> dict[str, Any]:
    """Return the document of an item."""
    try:
        return parsed(item[DOCUMENT])
    except (KeyError, ValueError) as error:
        raise damaged("document", item, error) from error

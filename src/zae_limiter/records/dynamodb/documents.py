"""Small documents: ``{ns}/SYSTEM#``, ``#VERSION`` or ``#PROVISIONER``; JSON text, one attribute."""

from __future__ import annotations

from typing import Any

from zae_limiter import schema
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.attributes import Item, damaged, document, parsed, s

BODY = "document"


def encode(namespace_id: str, key: str, value: dict[str, Any]) -> Item:
    return {
        **keys.record(namespace_id, key).item,
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
        BODY: document(value),
    }


def decode(item: Item) -> dict[str, Any]:
    try:
        return parsed(item[BODY])
    except (KeyError, ValueError) as error:
        raise damaged("document", item, error) from error

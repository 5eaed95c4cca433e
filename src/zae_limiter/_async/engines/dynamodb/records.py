"""Small documents by key."""

from __future__ import annotations

from typing import Any

from zae_limiter._async.engines.dynamodb.reading import get_item
from zae_limiter._async.engines.dynamodb.store import Store
from zae_limiter.exceptions import ValidationError
from zae_limiter.records.dynamodb import documents, keys
from zae_limiter.records.dynamodb.attributes import text

MOST_CHARACTERS = 390_000  # an item ends at 400 KB


class DynamoRecords:
    """One item each."""

    def __init__(self, store: Store) -> None:
        self._client = store.client

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        item = await get_item(self._client, keys.record(namespace_id, key))
        return None if item is None else documents.decode(item)

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        item = documents.encode(namespace_id, key, value)
        if len(text(item[documents.BODY])) > MOST_CHARACTERS:
            raise ValidationError(
                "document", len(item), f"must have at most {MOST_CHARACTERS} characters as JSON"
            )
        await self._client.call("PutItem", {"Item": item}, repeatable=True)

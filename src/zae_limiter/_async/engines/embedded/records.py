"""Small documents of the embedded engines."""

from __future__ import annotations

from typing import Any

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import records


class EmbeddedRecords:
    """Documents by key."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def get(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        return await self._client.read(records.get, (namespace_id, key))

    async def put(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        await self._client.write(records.put, (namespace_id, key, value))

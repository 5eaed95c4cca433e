"""The namespace registry of the embedded engines."""

from __future__ import annotations

from zae_limiter._async.engines.embedded.client import EmbeddedClient
from zae_limiter.embedded import namespaces
from zae_limiter.models.config import Namespace


class EmbeddedNamespaces:
    """Each step is one transaction; a purge is many, and can be taken up again."""

    def __init__(self, client: EmbeddedClient) -> None:
        self._client = client

    async def register(
        self, names: tuple[str, ...], now_ms: int, principal: str | None = None
    ) -> dict[str, str]:
        return await self._client.write(namespaces.register, (names, now_ms, principal))

    async def find(self, name: str) -> Namespace | None:
        return await self._client.read(namespaces.find, (name,))

    async def all(self) -> list[Namespace]:
        return await self._client.read(namespaces.listing, ())

    async def soft_delete(self, name: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.soft_delete, (name, now_ms, principal))

    async def recover(self, namespace_id: str, now_ms: int, principal: str | None = None) -> str:
        return await self._client.write(namespaces.recover, (namespace_id, now_ms, principal))

    async def begin_purge(self, namespace_id: str) -> int:
        return await self._client.write(namespaces.begin_purge, (namespace_id,))

    async def purge_batch(self, namespace_id: str, limit: int) -> int:
        return await self._client.write(namespaces.purge_batch, (namespace_id, limit))

    async def finish_purge(
        self, namespace_id: str, now_ms: int, principal: str | None = None
    ) -> None:
        await self._client.write(namespaces.finish_purge, (namespace_id, now_ms, principal))

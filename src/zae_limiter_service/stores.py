"""The store behind the service: one limiter for each namespace, opened on first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from zae_limiter import RateLimiter, Repository
from zae_limiter.store_url import parse_url

if TYPE_CHECKING:
    from zae_limiter import SyncRepository

CONFIG_CACHE_S = 5.0  # changes of limits by others are in force within this time
# An unnamed memory is private to whoever opens it; the page and the routes must see the same one.
SHARED_MEMORY = "memory://zae-limiter-service"


def shared_url(url: str | None) -> str | None:
    """Return the URL under which all parts of the process open the same store."""
    if url is None:
        return None
    parsed = parse_url(url)
    return SHARED_MEMORY if parsed.engine == "memory" and not parsed.place else url


class NamespaceStores:
    """Opens the namespaces of one store."""

    def __init__(self, root: Repository, hooks: object = None) -> None:
        self._hooks = hooks
        self._root = root
        self._limiters = {root.namespace_name: RateLimiter(root, hooks=hooks)}
        self._repositories = {root.namespace_name: root}
        self._lock = asyncio.Lock()

    @classmethod
    async def open(
        cls, url: str | None, namespace: str | None, hooks: object = None
    ) -> NamespaceStores:
        """Open the store; a missing one is an error."""
        builder = Repository.builder().namespace(namespace).url(shared_url(url))
        builder.provision("never").config_cache_ttl(CONFIG_CACHE_S)
        return cls(await builder.build(), hooks)

    @property
    def namespace(self) -> str:
        """The namespace of requests that name none."""
        return self._root.namespace_name

    @property
    def root(self) -> Repository:
        return self._root

    async def limiter(self, namespace: str) -> RateLimiter:
        """Return the limiter of a namespace; raise NamespaceNotFoundError if it is missing."""
        found = self._limiters.get(namespace)
        if found is not None:
            return found
        async with self._lock:
            if namespace not in self._limiters:
                repository = await self._root.namespace(namespace)
                self._repositories[namespace] = repository
                self._limiters[namespace] = RateLimiter(repository, hooks=self._hooks)
        return self._limiters[namespace]

    async def repository(self, namespace: str) -> Repository:
        """Return the repository of a namespace."""
        await self.limiter(namespace)
        return self._repositories[namespace]

    def lost_settlements(self) -> int:
        return sum(each.lost_settlements for each in self._repositories.values())

    def uncharged(self) -> int:
        return sum(each.uncharged_admissions for each in self._repositories.values())

    async def close(self) -> None:
        await self._root.close()


def open_sync(url: str | None, namespace: str) -> SyncRepository:
    """Open the same store for reports, which run in a thread of their own."""
    from zae_limiter import SyncRepository

    builder = SyncRepository.builder().namespace(namespace).url(shared_url(url))
    return builder.provision("never").config_cache_ttl(0).build()

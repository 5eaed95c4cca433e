"""``memory://``: for one process. Within it, ``memory://name`` is one store for every opener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.concurrency.receipt import Receipt
from zae_limiter.embedded.memory.store import MemoryStore, open_store
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.settings import Settings
from zae_limiter.store_url import StoreUrl

T = TypeVar("T")

CAPABILITIES = BackendCapabilities(
    engine="memory",
    durable=False,
    shared_between_processes=False,
    atomic_cascade=True,
    usage_history=True,
)


class MemoryClient:
    """Runs operations in the calling thread: they take microseconds and wait for the lock alone."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._closed = False

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: Receipt[T] | None = None,
        *,
        must_run: bool = False,
    ) -> T:
        self._check_open()
        return self._store.run(operation, args, receipt or Receipt())

    async def read(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        self._check_open()
        return self._store.run(operation, args, Receipt())

    async def list(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        return await self.read(operation, args)

    async def close(self) -> None:
        """Refuse further calls through this client; a named store stays open for the others."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the repository is closed; open it again")


def open_memory(url: StoreUrl, settings: Settings) -> EmbeddedEngine:
    """Open an engine over a new store, or over the one that this process shares by this name."""
    return EmbeddedEngine(MemoryClient(open_store(url.place)), CAPABILITIES, settings)

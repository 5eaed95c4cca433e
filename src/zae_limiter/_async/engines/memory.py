"""``memory://``: for one process. Within it, ``memory://name`` is one store for every opener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.clock import Deadline
from zae_limiter.embedded.memory.store import MemoryStore, open_store
from zae_limiter.embedded.memory.tables import MemoryTables
from zae_limiter.embedded.tables import Listing
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.runtime.calls import apause
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.settings import Settings
from zae_limiter.store_url import StoreUrl

T = TypeVar("T")

USAGE_RETENTION_DAYS = 7  # usage of buckets that are gone fills the memory of the process

CAPABILITIES = BackendCapabilities(
    engine="memory",
    durable=False,
    shared_between_processes=False,
    atomic_cascade=True,
    usage_history=True,
)


class MemoryClient:
    """Runs operations in the calling thread; they take microseconds and wait only for the lock."""

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
        deadline: Deadline | None = None,
    ) -> T:
        self._check_open()
        return self._store.run(operation, args, receipt or Receipt())

    async def read(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> T:
        self._check_open()
        return self._store.run(operation, args, Receipt())

    async def list(self, operation: Callable[..., Listing[T]], args: tuple[Any, ...]) -> T:
        """Read page by page: other tasks and threads run between two pages."""
        listing: Listing[T] = await self.read(operation, args)
        while True:
            try:
                await self.read(_next_page, (listing,))
            except _End as end:
                return end.value  # type: ignore[no-any-return]
            await apause()

    def groups(self) -> tuple[int, int, int]:
        return 0, 0, 0  # each caller has a transaction of its own

    async def close(self) -> None:
        """Refuse further calls through this client; a named store stays open for other clients."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the repository is closed; open it again")


class _End(Exception):
    """The result of a listing: a StopIteration cannot be raised from a coroutine."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _next_page(_: MemoryTables, listing: Listing[Any]) -> None:
    try:
        next(listing)
    except StopIteration as end:
        raise _End(end.value) from None


def open_memory(url: StoreUrl, settings: Settings) -> EmbeddedEngine:
    """Open an engine over a new store, or over the one that this process shares by this name."""
    return EmbeddedEngine(
        MemoryClient(open_store(url.place)), CAPABILITIES, settings, USAGE_RETENTION_DAYS
    )

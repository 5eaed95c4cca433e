"""``memory://``: for one process. ``memory://name`` is shared by all who open that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.embedded.memory.store import MemoryStore, open_store
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.models.backend import BackendCapabilities

T = TypeVar("T")

CAPABILITIES = BackendCapabilities(
    engine="memory",
    durable=False,
    shared_between_processes=False,
    atomic_cascade=True,
    usage_history=True,
)


class MemoryClient:
    """Runs operations at once: they take microseconds and never wait for anything but the lock."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._closed = False

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: list[T] | None = None,
        *,
        must_run: bool = False,
    ) -> T:
        self._check_open()
        return self._store.run(operation, args, [] if receipt is None else receipt)

    async def read(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        self._check_open()
        return self._store.run(operation, args, [])

    async def list(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        return await self.read(operation, args)

    async def close(self) -> None:
        """A named store lives on with its other users."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InfrastructureError("the repository is closed; open it again")


def open_memory(
    name: str | None, *, usage_retention_days: int, audit_retention_days: int
) -> EmbeddedEngine:
    """An engine over a store of its own, or over the one this process shares under ``name``."""
    return EmbeddedEngine(
        MemoryClient(open_store(name)),
        CAPABILITIES,
        usage_retention_days=usage_retention_days,
        audit_retention_days=audit_retention_days,
    )

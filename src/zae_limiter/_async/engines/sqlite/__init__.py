"""``sqlite://``: durable, for all processes of one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.concurrency.calls import ablocking
from zae_limiter.concurrency.worker import AWorker
from zae_limiter.embedded.sqlite.database import SqliteDatabase
from zae_limiter.models.backend import BackendCapabilities

T = TypeVar("T")

CAPABILITIES = BackendCapabilities(
    engine="sqlite",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=True,
    usage_history=True,
)


class SqliteClient:
    """One connection writes, another reads, so that a long listing delays no acquire."""

    def __init__(self, database: SqliteDatabase, timeout_s: float) -> None:
        self._database = database
        self._writer = AWorker(database.write, database.write_one, timeout_s)
        self._reader = AWorker(database.read, database.read_one, timeout_s)
        self._closed = False

    async def write(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        receipt: list[T] | None = None,
        *,
        must_run: bool = False,
    ) -> T:
        kept: list[T] = [] if receipt is None else receipt
        return await self._writer.run(operation, args, kept, must_run=must_run)

    async def read(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        return await self._reader.run(operation, args, [])

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
        if not self._closed:
            self._closed = True
            await ablocking(self._database.close)


async def open_sqlite(
    path: str,
    *,
    synchronous: str,
    timeout_s: float,
    usage_retention_days: int,
    audit_retention_days: int,
) -> EmbeddedEngine:
    """Open the file, making it or bringing its schema up to date where needed."""
    database = await ablocking(SqliteDatabase, path, synchronous, timeout_s)
    return EmbeddedEngine(
        SqliteClient(database, timeout_s),
        CAPABILITIES,
        usage_retention_days=usage_retention_days,
        audit_retention_days=audit_retention_days,
    )

"""``sqlite://``: durable, for all processes of one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.concurrency.calls import ablocking
from zae_limiter.concurrency.worker import AWorker, one_by_one
from zae_limiter.embedded.sqlite.database import SqliteDatabase
from zae_limiter.models.backend import BackendCapabilities

T = TypeVar("T")

UNHURRIED_S = 3600.0  # a listing may wait for another one

CAPABILITIES = BackendCapabilities(
    engine="sqlite",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=True,
    usage_history=True,
)


class SqliteClient:
    """One connection writes, one looks things up, one lists: no listing delays an acquire."""

    def __init__(self, database: SqliteDatabase, timeout_s: float) -> None:
        self._database = database
        self._writer = AWorker(database.write, database.write_one, timeout_s)
        self._lookups = AWorker(one_by_one(database.lookup), database.lookup, timeout_s)
        self._listings = AWorker(one_by_one(database.listing), database.listing, UNHURRIED_S)
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
        return await self._lookups.run(operation, args, [], abandon=True)

    async def list(self, operation: Callable[..., T], args: tuple[Any, ...]) -> T:
        return await self._listings.run(operation, args, [], abandon=True)

    async def close(self) -> None:
        await self._writer.close()
        await self._lookups.close()
        await self._listings.close()
        if not self._closed:
            self._closed = True
            await ablocking(self._database.close, undo=lambda _: None)


async def open_sqlite(
    path: str,
    *,
    synchronous: str,
    timeout_s: float,
    usage_retention_days: int,
    audit_retention_days: int,
) -> EmbeddedEngine:
    """Open the file, making it or bringing its schema up to date where needed."""
    database = await ablocking(
        SqliteDatabase, path, synchronous, timeout_s, undo=SqliteDatabase.close
    )
    return EmbeddedEngine(
        SqliteClient(database, timeout_s),
        CAPABILITIES,
        usage_retention_days=usage_retention_days,
        audit_retention_days=audit_retention_days,
    )

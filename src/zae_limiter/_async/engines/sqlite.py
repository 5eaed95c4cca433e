"""``sqlite://``: durable, shared by all processes of one machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter._async.engines.embedded import EmbeddedEngine
from zae_limiter.clock import Deadline, SharedClock
from zae_limiter.embedded.sqlite.database import SqliteDatabase
from zae_limiter.embedded.sqlite.file_options import FileOptions
from zae_limiter.embedded.tables import Listing
from zae_limiter.models.backend import BackendCapabilities
from zae_limiter.runtime.calls import ablocking
from zae_limiter.runtime.finishing import Receipt
from zae_limiter.runtime.worker import AWorker, one_by_one
from zae_limiter.settings import Settings
from zae_limiter.store_url import StoreUrl

T = TypeVar("T")

LISTING_TIMEOUT_S = 3600.0  # listings run one by one, and a large file takes minutes

USAGE_RETENTION_DAYS = 90

CAPABILITIES = BackendCapabilities(
    engine="sqlite",
    durable=True,
    shared_between_processes=True,
    atomic_cascade=True,
    usage_history=True,
)


class SqliteClient:
    """A worker and a connection each for writes, lookups and listings.

    A listing therefore never delays an acquire.
    """

    def __init__(self, database: SqliteDatabase, timeout_s: float) -> None:
        self._database = database
        self._writer = AWorker(database.write, database.write_one, timeout_s)
        self._lookups = AWorker(one_by_one(database.lookup), database.lookup, timeout_s)
        self._listings = AWorker(one_by_one(database.listing), database.listing, LISTING_TIMEOUT_S)
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
        return await self._writer.run(
            operation, args, receipt or Receipt(), must_run=must_run, deadline=deadline
        )

    async def read(
        self,
        operation: Callable[..., T],
        args: tuple[Any, ...],
        deadline: Deadline | None = None,
    ) -> T:
        return await self._lookups.run(operation, args, Receipt(), abandon=True, deadline=deadline)

    async def list(self, operation: Callable[..., Listing[T]], args: tuple[Any, ...]) -> T:
        receipt: Receipt[T] = Receipt()
        await self._listings.run(operation, args, receipt, abandon=True)  # type: ignore[arg-type]
        return receipt.outcome

    def groups(self) -> tuple[int, int, int]:
        groups = self._database.groups
        return groups.groups, groups.grouped, groups.largest_group

    async def close(self) -> None:
        await self._writer.close()
        await self._lookups.close()
        await self._listings.close()
        if not self._closed:
            self._closed = True
            await ablocking(self._database.close, undo=lambda _: None)


async def open_sqlite(url: StoreUrl, settings: Settings) -> EmbeddedEngine:
    """Open the file; create it if it is missing, migrate it if its schema is older.

    A ``SharedClock`` is set to the time that the file's processes share; any other is left alone.
    """
    timeout_s, clock = settings.request_timeout, settings.clock
    database = await ablocking(
        SqliteDatabase,
        url.place,
        FileOptions.of(url.options),
        timeout_s,
        clock if isinstance(clock, SharedClock) else None,
        undo=SqliteDatabase.close,
    )
    return EmbeddedEngine(
        SqliteClient(database, timeout_s),
        CAPABILITIES,
        settings,
        USAGE_RETENTION_DAYS,
        request_timeout=timeout_s,
    )

"""Run the migrations of a table: resumable, repeatable, and by several runners at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.store import get_item
from zae_limiter._async.engines.dynamodb.table_version import read_version_record
from zae_limiter.clock import Deadline
from zae_limiter.dynamodb import expressions, table
from zae_limiter.dynamodb.migrations import MIGRATIONS, Migration, Rewrite, pending
from zae_limiter.exceptions import IncompatibleSchemaError
from zae_limiter.items import version_record
from zae_limiter.items.stored import keys, system
from zae_limiter.items.stored.attributes import Item, decode_document
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.models.backend import MigrationProgress, MigrationReport
from zae_limiter.naming import RESERVED_NAMESPACE, VERSION_RECORD
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.parallel import Parallel, agather
from zae_limiter.store_errors import ConditionFailed

PAGE_ITEMS = 500  # read at a time; a resumed run repeats at most one page
PARALLEL_WRITES = 8  # leaves connections and throughput to acquires
CALL_S = 30.0  # a table that throttles may delay a migration, but must not end it
PLACE_RECORD = "migration"  # the document with the place of the running migration

logger = quiet_logger(__name__)

OnProgress = Callable[[MigrationProgress], None]


class Migrator:
    """Rewrites every item of a table, page by page, and notes its place after each page.

    The version record is changed first, so that clients of the older version cannot open the
    table any more. The record's note that a migration runs is removed last. If a run ends in
    between, the next run resumes it.
    """

    def __init__(
        self,
        client: DynamoClient,
        parallel: Parallel,
        migrations: Sequence[Migration] = MIGRATIONS,
        page_items: int = PAGE_ITEMS,
    ) -> None:
        self._client = client
        self._parallel = parallel
        self._migrations = migrations
        self._page_items = page_items

    async def run(
        self, *, dry_run: bool = False, on_progress: OnProgress | None = None
    ) -> MigrationReport:
        """Bring the table to the current schema; with ``dry_run`` only count the changes."""
        record = await read_version_record(self._client)
        before = table.version_of(record)
        if before > version_record.SCHEMA_VERSION:
            raise IncompatibleSchemaError(
                before,
                version_record.SCHEMA_VERSION,
                f"nothing was changed; update zae-limiter to migrate table {self._client.table!r}",
            )
        total = MigrationProgress("", 0, 0)
        for migration in pending(self._migrations, before):
            if not dry_run:
                await self._begin(migration.version - 1)
            done = await self._migrate(migration, dry_run, on_progress)
            total = total.plus(done)
        if before < version_record.SCHEMA_VERSION and not dry_run:
            await self._end()
        return MigrationReport(
            before, version_record.SCHEMA_VERSION, total.read, total.changed, dry_run
        )

    async def _migrate(
        self, migration: Migration, dry_run: bool, on_progress: OnProgress | None
    ) -> MigrationProgress:
        after = await self._place(migration)
        progress = MigrationProgress(migration.summary, 0, 0)
        while True:
            body: dict[str, Any] = {"Limit": self._page_items, "ConsistentRead": True}
            if after is not None:
                body["ExclusiveStartKey"] = after
            answer = await self._client.call("Scan", body, deadline=Deadline(CALL_S))
            items: list[Item] = answer.get("Items", [])
            changed = await self._rewrite(migration.rewrite, items, dry_run)
            after = answer.get("LastEvaluatedKey")
            if not dry_run:
                await self._put_place(migration, after)
            progress = progress._replace(
                read=progress.read + len(items), changed=progress.changed + changed
            )
            if on_progress is not None:
                on_progress(progress)
            if after is None:
                logger.info("table %s: migrated, %s", self._client.table, progress.migration)
                return progress

    async def _rewrite(self, rewrite: Rewrite, items: list[Item], dry_run: bool) -> int:
        """Write the new form of a page and return the number of updates."""
        updates = [update for item in items for update in rewrite(item)]
        if not dry_run:
            for some in _groups(updates):
                await agather(
                    self._parallel, *(lambda update=update: self._write(update) for update in some)
                )
        return len(updates)

    async def _write(self, update: ItemUpdate) -> None:
        with suppress(ConditionFailed):  # the item was deleted, or another runner rewrote it
            body = expressions.body(update)
            await self._client.call("UpdateItem", body, deadline=Deadline(CALL_S), repeatable=True)

    # --- records

    async def _begin(self, from_version: int) -> None:
        """Raise the version in the record, which keeps clients of the older version out."""
        record = await self._document(VERSION_RECORD)
        await self._put(VERSION_RECORD, table.record_during_migration(record, from_version))

    async def _end(self) -> None:
        record = await self._document(VERSION_RECORD)
        await self._put(VERSION_RECORD, table.record_after_migration(record))
        key = keys.record(RESERVED_NAMESPACE, PLACE_RECORD)
        await self._client.call("DeleteItem", {"Key": key.attributes}, repeatable=True)

    async def _place(self, migration: Migration) -> Item | None:
        """Return the last key that an unfinished run has read; None if there is no such run."""
        place = await self._document(PLACE_RECORD)
        if place is None or place["version"] != migration.version:
            return None
        after: Item | None = place["after"]
        return after

    async def _put_place(self, migration: Migration, after: Item | None) -> None:
        await self._put(PLACE_RECORD, {"version": migration.version, "after": after})

    async def _document(self, key: str) -> dict[str, Any] | None:
        item = await get_item(self._client, keys.record(RESERVED_NAMESPACE, key))
        return None if item is None else decode_document(item)

    async def _put(self, key: str, value: dict[str, Any]) -> None:
        item = system.encode_document(RESERVED_NAMESPACE, key, value)
        await self._client.call("PutItem", {"Item": item}, repeatable=True)


def _groups(updates: list[ItemUpdate]) -> Iterator[list[ItemUpdate]]:
    for start in range(0, len(updates), PARALLEL_WRITES):
        yield updates[start : start + PARALLEL_WRITES]

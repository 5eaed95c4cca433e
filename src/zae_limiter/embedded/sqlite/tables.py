"""Tables over one SQLite connection, with constant statements, which SQLite keeps prepared."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, HourUsage
from zae_limiter.embedded.sqlite import rows as stored
from zae_limiter.embedded.sqlite.registry_tables import KEY, NO_LIMIT, RegistryTables
from zae_limiter.embedded.sqlite.schema import OWNED_TABLES
from zae_limiter.embedded.tables import BucketKey, BucketRow, UndecodedBucket

_GET_BUCKET = f"SELECT state FROM bucket WHERE {KEY}"
_PUT_BUCKET_STATE = f"UPDATE bucket SET state = ? WHERE {KEY}"
_PUT_BUCKET = (
    "INSERT INTO bucket VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
    "SET state = excluded.state, expires_ms = excluded.expires_ms"
)
_PUT_RESOURCE = "INSERT OR IGNORE INTO resource_in_use VALUES (?, ?)"
_GET_USAGE = f"SELECT {stored.USAGE_COLUMNS} FROM usage WHERE {KEY} AND hour = ?"
_USAGE_ROW = (
    f"INTO usage (namespace_id, entity_id, resource, {stored.USAGE_COLUMNS}) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_NEW_USAGE = f"INSERT OR IGNORE {_USAGE_ROW}"
_PUT_USAGE = f"INSERT OR REPLACE {_USAGE_ROW}"
_UNREAD = object()
PAGE = 100  # rows of one read transaction, which takes less than a millisecond
MAX_DECODED = 10_000  # decoded buckets in memory: about 10 MB


class SqliteTables(RegistryTables):
    """The tables that ``embedded.tables.Tables`` describes, in SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        # Text and value of the last written rows, so that a busy bucket is seldom decoded.
        self._decoded: dict[tuple[str, str, str], tuple[str, BucketImage]] = {}
        # Expiry of the rows that this transaction has read. The column is indexed, and is therefore
        # written only when it changes.
        self._expiry: dict[tuple[str, str, str], int | None] = {}

    def begin(self) -> None:
        """Start a transaction: another connection may have changed any row since the last one."""
        self._expiry.clear()

    # --- buckets

    def get_bucket(self, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
        key = (namespace_id, entity_id, resource)
        row = self._execute(_GET_BUCKET, key).fetchone()
        if row is None:
            self._expiry.pop(key, None)
            return None
        entry = self._decoded.get(key)
        image = entry[1] if entry and entry[0] == row[0] else stored.decode_bucket(row[0])
        self._expiry[key] = image.expires_ms
        return image

    def put_bucket(
        self, namespace_id: str, entity_id: str, resource: str, image: BucketImage
    ) -> None:
        key = (namespace_id, entity_id, resource)
        state = stored.encode_bucket(image)
        if self._expiry.get(key, _UNREAD) == image.expires_ms:
            self._execute(_PUT_BUCKET_STATE, (state, *key))
        else:
            if key not in self._expiry:  # a new bucket
                self._execute(_PUT_RESOURCE, (namespace_id, resource))
            self._execute(_PUT_BUCKET, (*key, state, image.expires_ms))
            self._expiry[key] = image.expires_ms
        if len(self._decoded) >= MAX_DECODED:
            self._decoded.clear()
        self._decoded[key] = (state, image)

    def delete_bucket(self, namespace_id: str, entity_id: str, resource: str) -> None:
        key = (namespace_id, entity_id, resource)
        self._expiry.pop(key, None)
        self._execute(f"DELETE FROM bucket WHERE {KEY}", key)

    def buckets(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        after: BucketKey | None = None,
        limit: int | None = None,
    ) -> list[BucketRow]:
        where, values = _filters(namespace_id, entity_id, resource)
        rows = self._execute(
            "SELECT namespace_id, entity_id, resource, state FROM bucket "
            f"WHERE {where} AND (entity_id, resource) > (?, ?) "
            "ORDER BY entity_id, resource LIMIT ?",
            (*values, *(after or ("", "")), NO_LIMIT if limit is None else limit),
        )
        return [_bucket_row(*row) for row in rows.fetchall()]

    def undecoded_buckets(
        self, namespace_id: str, after: BucketKey | None, limit: int
    ) -> list[UndecodedBucket]:
        rows = self._execute(
            "SELECT entity_id, resource, state FROM bucket "
            "WHERE namespace_id = ? AND (entity_id, resource) > (?, ?) "
            "ORDER BY entity_id, resource LIMIT ?",
            (namespace_id, *(after or ("", "")), limit),
        )
        return [
            UndecodedBucket(entity_id, resource, hash(state), partial(stored.decode_bucket, state))
            for entity_id, resource, state in rows.fetchall()
        ]

    def entity_buckets(self, namespace_id: str, entity_id: str) -> list[BucketRow]:
        rows = self._execute(
            "SELECT namespace_id, entity_id, resource, state FROM bucket "
            "WHERE namespace_id = ? AND entity_id = ? ORDER BY resource",
            (namespace_id, entity_id),
        )
        return [_bucket_row(*row) for row in rows.fetchall()]

    def bucket_pages(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> Iterator[list[BucketRow]]:
        after: BucketKey | None = None
        while True:
            page = self.buckets(namespace_id, entity_id, resource, after, PAGE)
            yield page
            if len(page) < PAGE:
                return
            after = page[-1].entity_id, page[-1].resource

    def resources_in_use(self, namespace_id: str) -> list[str]:
        return self._column(
            "SELECT resource FROM resource_in_use WHERE namespace_id = ? ORDER BY resource",
            (namespace_id,),
        )

    def expired_buckets(self, now_ms: int, limit: int) -> list[BucketRow]:
        rows = self._execute(
            "SELECT namespace_id, entity_id, resource, state FROM bucket "
            "WHERE expires_ms <= ? LIMIT ?",
            (now_ms, limit),
        )
        return [_bucket_row(*row) for row in rows.fetchall()]

    # --- usage

    def add_usage(self, namespace_id: str, entity_id: str, resource: str, usage: HourUsage) -> None:
        key = (namespace_id, entity_id, resource)
        if self._execute(_NEW_USAGE, (*key, *stored.encode_usage(usage))).rowcount:
            return  # the usual case: a bucket's hour is stored once
        row = self._execute(_GET_USAGE, (*key, usage.hour)).fetchone()
        total = stored.decode_usage(*row).plus(usage)
        self._execute(_PUT_USAGE, (*key, *stored.encode_usage(total)))

    def usage_pages(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[list[BucketHour]]:
        where, values = _filters(namespace_id, entity_id, resource)
        # One entity has few rows, which no index sorts by time, so all are read at once.
        page_size = PAGE if entity_id is None else NO_LIMIT
        after = (from_hour, "", "")
        while True:
            rows = self._execute(
                f"SELECT entity_id, resource, {stored.USAGE_COLUMNS} FROM usage "
                f"WHERE {where} AND hour >= ? AND hour < ? "
                "AND (hour, entity_id, resource) > (?, ?, ?) "
                "ORDER BY hour, entity_id, resource LIMIT ?",
                (*values, after[0], to_hour, *after, page_size),
            ).fetchall()
            yield [BucketHour(row[0], row[1], stored.decode_usage(*row[2:])) for row in rows]
            if len(rows) != page_size:
                return
            after = (rows[-1][2], *rows[-1][:2])

    def delete_usage(self, before_hour: int, limit: int) -> int:
        return self._execute(
            "DELETE FROM usage WHERE (namespace_id, entity_id, resource, hour) IN ("
            "SELECT namespace_id, entity_id, resource, hour FROM usage WHERE hour < ? LIMIT ?)",
            (before_hour, limit),
        ).rowcount

    # --- whole namespaces

    def purge_rows(self, namespace_id: str, limit: int) -> int:
        removed = 0
        self._expiry.clear()
        for table in OWNED_TABLES:
            if removed < limit:
                removed += self._purge_table(table, namespace_id, limit - removed)
        return removed

    def clear(self) -> None:
        self._expiry.clear()
        for table in (*OWNED_TABLES, "namespace"):
            self._execute(f"DELETE FROM {table}")

    def _purge_table(self, table: str, namespace_id: str, limit: int) -> int:
        columns = self._execute(f"PRAGMA table_info({table})").fetchall()
        key = ", ".join(column[1] for column in columns if column[5])
        return self._execute(
            f"DELETE FROM {table} WHERE ({key}) IN "
            f"(SELECT {key} FROM {table} WHERE namespace_id = ? LIMIT ?)",
            (namespace_id, limit),
        ).rowcount


def _bucket_row(namespace_id: str, entity_id: str, resource: str, state: str) -> BucketRow:
    return BucketRow(namespace_id, entity_id, resource, stored.decode_bucket(state))


def _filters(
    namespace_id: str, entity_id: str | None, resource: str | None
) -> tuple[str, tuple[str, ...]]:
    where, values = ["namespace_id = ?"], [namespace_id]
    for column, value in (("entity_id", entity_id), ("resource", resource)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    return " AND ".join(where), tuple(values)

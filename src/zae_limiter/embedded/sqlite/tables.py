"""Tables over one SQLite connection, with constant statements, which SQLite keeps prepared."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.embedded.sqlite import rows as stored
from zae_limiter.embedded.sqlite.schema import OWNED_TABLES
from zae_limiter.embedded.tables import NO_ENTITY, BucketKey, BucketRow
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity, Namespace

_BUCKET_KEY = "namespace_id = ? AND entity_id = ? AND resource = ?"
_GET_BUCKET = f"SELECT state FROM bucket WHERE {_BUCKET_KEY}"
_PUT_BUCKET_STATE = f"UPDATE bucket SET state = ? WHERE {_BUCKET_KEY}"
_PUT_BUCKET = (
    "INSERT INTO bucket VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
    "SET state = excluded.state, expires_ms = excluded.expires_ms"
)
_PUT_RESOURCE = "INSERT OR IGNORE INTO resource_in_use VALUES (?, ?)"
_GET_USAGE = f"SELECT {stored.USAGE_COLUMNS} FROM usage WHERE {_BUCKET_KEY} AND hour = ?"
_PUT_USAGE = (
    f"INSERT OR REPLACE INTO usage (namespace_id, entity_id, resource, {stored.USAGE_COLUMNS}) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_IS_PURGING = "SELECT 1 FROM namespace WHERE namespace_id = ? AND status = 'purging'"
_UNREAD = object()
PAGE = 100  # rows of one read transaction, which takes less than a millisecond
MAX_DECODED = 10_000  # buckets kept decoded: about 10 MB
NO_LIMIT = -1  # how SQLite spells it
_MOST = 2**62  # a Python integer may be larger than those of SQLite


class SqliteTables:
    """The tables that ``embedded.tables.Tables`` describes, in SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        # Text and meaning of the last rows written: a busy bucket is not decoded on every charge.
        self._decoded: dict[tuple[str, str, str], tuple[str, BucketImage]] = {}
        # Expiry of the rows read in this transaction; the column is indexed, so it is written
        # only when it changes.
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
        self._execute(f"DELETE FROM bucket WHERE {_BUCKET_KEY}", key)

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
        where, values = _filters(namespace_id, entity_id, resource)
        after = ("", "")
        while True:
            rows = self._execute(
                "SELECT namespace_id, entity_id, resource, state FROM bucket "
                f"WHERE {where} AND (entity_id, resource) > (?, ?) "
                "ORDER BY entity_id, resource LIMIT ?",
                (*values, *after, PAGE),
            ).fetchall()
            yield [_bucket_row(*row) for row in rows]
            if len(rows) < PAGE:
                return
            after = rows[-1][1:3]

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

    def add_usage(
        self, namespace_id: str, entity_id: str, resource: str, usage: WindowUsage
    ) -> None:
        key = (namespace_id, entity_id, resource, usage.hour)
        row = self._execute(_GET_USAGE, key).fetchone()
        total = usage if row is None else stored.decode_usage(*row).plus(usage)
        self._execute(_PUT_USAGE, (*key[:3], *stored.encode_usage(total)))

    def usage_pages(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[list[BucketHour]]:
        where, values = _filters(namespace_id, entity_id, resource)
        # One entity has few rows, which no index has in the order of time; read them at once.
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

    # --- configuration

    def get_config(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        row = self._execute(
            f"SELECT body FROM config WHERE {_BUCKET_KEY}", (namespace_id, entity_id, resource)
        ).fetchone()
        return None if row is None else stored.decode_config(row[0])

    def put_config(
        self, namespace_id: str, entity_id: str, resource: str, config: LevelConfig
    ) -> None:
        self._execute(
            "INSERT OR REPLACE INTO config VALUES (?, ?, ?, ?)",
            (namespace_id, entity_id, resource, stored.encode_config(config)),
        )

    def delete_config(self, namespace_id: str, entity_id: str, resource: str) -> None:
        self._execute(
            f"DELETE FROM config WHERE {_BUCKET_KEY}", (namespace_id, entity_id, resource)
        )

    def config_resources(self, namespace_id: str, entity_id: str) -> list[str]:
        return self._column(
            "SELECT resource FROM config WHERE namespace_id = ? AND entity_id = ? "
            "ORDER BY resource",
            (namespace_id, entity_id),
        )

    def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        return self._column(
            "SELECT entity_id FROM config WHERE namespace_id = ? AND resource = ? "
            "AND entity_id > ? ORDER BY entity_id LIMIT ?",
            (namespace_id, resource, after, NO_LIMIT if limit is None else limit),
        )

    def entity_config_resources(self, namespace_id: str) -> list[str]:
        return self._column(
            "SELECT DISTINCT resource FROM config WHERE namespace_id = ? AND entity_id <> ? "
            "ORDER BY resource",
            (namespace_id, NO_ENTITY),
        )

    def config_version(self, namespace_id: str) -> int:
        row = self._execute(
            "SELECT version FROM config_version WHERE namespace_id = ?", (namespace_id,)
        ).fetchone()
        return 0 if row is None else row[0]

    def bump_config_version(self, namespace_id: str) -> None:
        self._execute(
            "INSERT INTO config_version VALUES (?, 1) "
            "ON CONFLICT DO UPDATE SET version = version + 1",
            (namespace_id,),
        )

    # --- entities

    def get_entity(self, namespace_id: str, entity_id: str) -> Entity | None:
        row = self._execute(
            f"SELECT {stored.ENTITY_COLUMNS} FROM entity WHERE namespace_id = ? AND entity_id = ?",
            (namespace_id, entity_id),
        ).fetchone()
        return None if row is None else stored.decode_entity(row)

    def put_entity(self, namespace_id: str, entity: Entity) -> None:
        self._execute(
            "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?, ?)",
            (namespace_id, *stored.encode_entity(entity)),
        )

    def delete_entity(self, namespace_id: str, entity_id: str) -> None:
        self._execute(
            "DELETE FROM entity WHERE namespace_id = ? AND entity_id = ?",
            (namespace_id, entity_id),
        )

    def entities(
        self, namespace_id: str, parent_id: str, after: str, limit: int | None
    ) -> list[Entity]:
        rows = self._execute(
            f"SELECT {stored.ENTITY_COLUMNS} FROM entity "
            "WHERE namespace_id = ? AND parent_id = ? AND entity_id > ? "
            "ORDER BY entity_id LIMIT ?",
            (namespace_id, parent_id, after, NO_LIMIT if limit is None else limit),
        )
        return [stored.decode_entity(row) for row in rows]

    def entities_in_use(self, namespace_id: str, after: str, limit: int | None) -> list[Entity]:
        # Both halves are read in the order of their keys, and no further than the page reaches.
        page = (
            "SELECT entity_id FROM entity WHERE namespace_id = ?1 AND entity_id > ?2 "
            "UNION SELECT entity_id FROM bucket WHERE namespace_id = ?1 AND entity_id > ?2 "
            "ORDER BY entity_id LIMIT ?3"
        )
        ids = self._column(page, (namespace_id, after, NO_LIMIT if limit is None else limit))
        if not ids:
            return []
        rows = self._execute(
            f"SELECT {stored.ENTITY_COLUMNS} FROM entity "
            "WHERE namespace_id = ? AND entity_id BETWEEN ? AND ?",
            (namespace_id, ids[0], ids[-1]),
        )
        registered = {entity.id: entity for entity in map(stored.decode_entity, rows)}
        return [registered.get(entity_id) or Entity(entity_id) for entity_id in ids]

    # --- namespaces

    def get_namespace(self, namespace_id: str) -> Namespace | None:
        row = self._execute(
            f"SELECT {stored.NAMESPACE_COLUMNS} FROM namespace WHERE namespace_id = ?",
            (namespace_id,),
        ).fetchone()
        return None if row is None else Namespace(*row)

    def active_namespace(self, name: str) -> Namespace | None:
        row = self._execute(
            f"SELECT {stored.NAMESPACE_COLUMNS} FROM namespace "
            "WHERE name = ? AND status = 'active'",
            (name,),
        ).fetchone()
        return None if row is None else Namespace(*row)

    def namespaces(self) -> list[Namespace]:
        rows = self._execute(
            f"SELECT {stored.NAMESPACE_COLUMNS} FROM namespace ORDER BY name, namespace_id"
        )
        return [Namespace(*row) for row in rows]

    def put_namespace(self, namespace: Namespace) -> None:
        self._execute(
            "INSERT OR REPLACE INTO namespace VALUES (?, ?, ?, ?, ?)",
            stored.encode_namespace(namespace),
        )

    def delete_namespace(self, namespace_id: str) -> None:
        self._execute("DELETE FROM namespace WHERE namespace_id = ?", (namespace_id,))

    def is_purging(self, namespace_id: str) -> bool:
        return self._execute(_IS_PURGING, (namespace_id,)).fetchone() is not None

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

    # --- audit

    def add_audit(self, namespace_id: str, event: AuditEvent) -> None:
        self._execute(
            f"INSERT INTO audit (namespace_id, {stored.EVENT_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (namespace_id, *stored.encode_event(event)),
        )

    def audit(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        where, values = "namespace_id = ? AND entity_id = ?", [namespace_id, entity_id]
        if entity_id is None:
            # The plus keeps SQLite from sorting the whole namespace: it follows audit_by_time.
            where, values = "+namespace_id = ?", [namespace_id]
        if before_event_id is not None:
            where, values = f"{where} AND event_id < ?", [*values, before_event_id]
        rows = self._execute(
            f"SELECT {stored.EVENT_COLUMNS} FROM audit WHERE {where} "
            "ORDER BY event_id DESC LIMIT ?",
            (*values, min(limit, _MOST)),
        )
        return [stored.decode_event(row) for row in rows]

    def delete_audit(self, before_event_id: str, limit: int) -> int:
        return self._execute(
            "DELETE FROM audit WHERE (namespace_id, entity_id, event_id) IN ("
            "SELECT namespace_id, entity_id, event_id FROM audit WHERE event_id < ? LIMIT ?)",
            (before_event_id, limit),
        ).rowcount

    # --- documents

    def get_document(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        row = self._execute(
            "SELECT body FROM record WHERE namespace_id = ? AND key = ?", (namespace_id, key)
        ).fetchone()
        return None if row is None else stored.decode_document(row[0])

    def put_document(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        self._execute(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?)",
            (namespace_id, key, stored.encode_document(value)),
        )

    def _column(self, statement: str, values: tuple[Any, ...]) -> list[str]:
        return [row[0] for row in self._execute(statement, values)]


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

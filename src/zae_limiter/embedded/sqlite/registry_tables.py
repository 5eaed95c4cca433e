"""Rows of a SQLite file beside buckets: configuration, entities, namespaces, audit, documents."""

from __future__ import annotations

import sqlite3
from typing import Any

from zae_limiter.embedded.sqlite import rows as stored
from zae_limiter.embedded.tables import NO_ENTITY
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity, Namespace

KEY = "namespace_id = ? AND entity_id = ? AND resource = ?"
_IS_PURGING = "SELECT 1 FROM namespace WHERE namespace_id = ? AND status = 'purging'"
NO_LIMIT = -1  # how SQLite spells it
_MOST = 2**62  # a Python integer may be larger than those of SQLite


class RegistryTables:
    """Configuration, entities, namespaces, audit events and documents, in SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    # --- configuration

    def get_config(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        row = self._execute(
            f"SELECT body FROM config WHERE {KEY}", (namespace_id, entity_id, resource)
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
        self._execute(f"DELETE FROM config WHERE {KEY}", (namespace_id, entity_id, resource))

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
        # Both halves are read in the order of their keys, and only as far as the page needs.
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
            # The plus makes SQLite follow audit_by_time instead of sorting the whole namespace.
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

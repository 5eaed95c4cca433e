"""The schema of the SQLite file, and its migrations."""

from __future__ import annotations

import sqlite3

from zae_limiter.exceptions import IncompatibleSchemaError, InfrastructureError

APPLICATION_ID = 0x5A41454C  # "ZAEL": tells our files from other SQLite files

_V1 = """
CREATE TABLE bucket (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  state TEXT NOT NULL, expires_ms INTEGER,
  PRIMARY KEY (namespace_id, entity_id, resource)) WITHOUT ROWID;
CREATE INDEX bucket_by_resource ON bucket (namespace_id, resource, entity_id);
CREATE INDEX bucket_by_expiry ON bucket (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE usage (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  hour INTEGER NOT NULL, counters TEXT NOT NULL, events INTEGER NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, resource, hour)) WITHOUT ROWID;
CREATE INDEX usage_by_resource ON usage (namespace_id, resource, hour);
CREATE INDEX usage_by_hour ON usage (hour);
CREATE TABLE config (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, resource TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, resource)) WITHOUT ROWID;
CREATE INDEX config_by_resource ON config (namespace_id, resource, entity_id);
CREATE TABLE config_version (
  namespace_id TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entity (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, name TEXT, parent_id TEXT,
  cascade INTEGER NOT NULL, metadata TEXT NOT NULL, created_at TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id)) WITHOUT ROWID;
CREATE INDEX entity_by_parent ON entity (namespace_id, parent_id, entity_id);
CREATE TABLE namespace (
  namespace_id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL,
  created_at TEXT NOT NULL, deleted_at TEXT) WITHOUT ROWID;
CREATE UNIQUE INDEX namespace_active ON namespace (name) WHERE status = 'active';
CREATE TABLE audit (
  namespace_id TEXT NOT NULL, entity_id TEXT NOT NULL, event_id TEXT NOT NULL,
  timestamp TEXT NOT NULL, action TEXT NOT NULL, principal TEXT, resource TEXT,
  details TEXT NOT NULL,
  PRIMARY KEY (namespace_id, entity_id, event_id)) WITHOUT ROWID;
CREATE INDEX audit_by_time ON audit (event_id);
CREATE TABLE record (
  namespace_id TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (namespace_id, key)) WITHOUT ROWID;
"""

# No namespace owns this table. `clear` keeps it, since other processes go on using it.
_V2 = """
CREATE TABLE clock (
  machine TEXT PRIMARY KEY,
  settled_ns INTEGER NOT NULL, offset_ns INTEGER NOT NULL, since_ns INTEGER NOT NULL,
  start_ns INTEGER NOT NULL, divisor INTEGER NOT NULL,
  next_since_ns INTEGER, next_offset_ns INTEGER NOT NULL) WITHOUT ROWID;
"""

_V3 = """
ALTER TABLE usage ADD COLUMN through_children TEXT NOT NULL DEFAULT '{}';
ALTER TABLE usage ADD COLUMN tally TEXT NOT NULL DEFAULT '[0,0,0,{}]';
CREATE INDEX usage_by_namespace ON usage (namespace_id, hour);
"""

_V4 = """
CREATE TABLE resource_in_use (
  namespace_id TEXT NOT NULL, resource TEXT NOT NULL,
  PRIMARY KEY (namespace_id, resource)) WITHOUT ROWID;
INSERT INTO resource_in_use
  SELECT namespace_id, resource FROM bucket UNION SELECT namespace_id, resource FROM usage;
"""

# One script for each version, in order. A released script never changes, because files of its
# version exist. Another script is added instead.
MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3, _V4)
OWNED_TABLES = (
    "bucket",
    "usage",
    "config",
    "config_version",
    "entity",
    "audit",
    "record",
    "resource_in_use",
)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file to the current schema. The caller holds the write lock."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == len(MIGRATIONS):
        return
    if version > len(MIGRATIONS):
        raise IncompatibleSchemaError(
            version, len(MIGRATIONS), f"update zae-limiter to open {path!r}"
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in MIGRATIONS[version:]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_owner(connection: sqlite3.Connection, path: str) -> None:
    """Raise InfrastructureError for a SQLite file of another program, before any write."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
    if owner != APPLICATION_ID and not empty:
        raise InfrastructureError(
            f"{path!r} is a SQLite file of another program; choose another path"
        )

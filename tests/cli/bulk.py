"""Stores with very many entities, filled by SQL, since a test has no minutes."""

import sqlite3

from zae_limiter import Limit, SyncRepository

COUNT = 100_000


def fill(path, namespace="default", count=COUNT):
    """A parent with ``count`` keys, each with limits of its own; returns the namespace's id."""
    with SyncRepository.open(namespace, url=f"sqlite:///{path}") as repository:
        repository.create_entity("key-000000", parent_id="project")
        repository.set_limits("key-000000", [Limit.per_minute("rpm", 5)], "gpt-4")
        namespace_id = repository.namespace_id
    connection = sqlite3.connect(path)
    for table, columns in (
        ("config", "resource, body"),
        ("entity", "name, parent_id, cascade, metadata, created_at"),
    ):
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            f"INSERT INTO {table} SELECT namespace_id, printf('key-%06d', i), {columns} "
            f"FROM {table}, n WHERE entity_id = 'key-000000' AND namespace_id = ?",
            (count - 1, namespace_id),
        )
    connection.commit()
    connection.close()
    return namespace_id

"""All tables of a memory store."""

from __future__ import annotations

from itertools import islice
from typing import Any

from zae_limiter.embedded.memory.buckets import BucketTables
from zae_limiter.embedded.memory.records import RecordTables
from zae_limiter.embedded.memory.usage import UsageTables
from zae_limiter.models.entity import Namespace


class MemoryTables(BucketTables, UsageTables, RecordTables):
    """The tables that ``embedded.tables.Tables`` describes, in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._namespaces: dict[str, Namespace] = {}

    def get_namespace(self, namespace_id: str) -> Namespace | None:
        return self._namespaces.get(namespace_id)

    def active_namespace(self, name: str) -> Namespace | None:
        for namespace in self._namespaces.values():
            if namespace.name == name and namespace.status == "active":
                return namespace
        return None

    def namespaces(self) -> list[Namespace]:
        return sorted(self._namespaces.values(), key=lambda space: (space.name, space.namespace_id))

    def put_namespace(self, namespace: Namespace) -> None:
        self.journal.put(self._namespaces, namespace.namespace_id, namespace)

    def delete_namespace(self, namespace_id: str) -> None:
        self.journal.delete(self._namespaces, namespace_id)

    def is_purging(self, namespace_id: str) -> bool:
        namespace = self._namespaces.get(namespace_id)
        return namespace is not None and namespace.status == "purging"

    def purge_rows(self, namespace_id: str, limit: int) -> int:
        space, removed = self._space(namespace_id), 0
        for resource, entities in list(space.buckets.items()):
            for entity_id in list(islice(entities, limit - removed)):
                self.delete_bucket(namespace_id, entity_id, resource)
                removed += 1
        for spaces in list(self._usage.values()):
            if removed < limit:
                removed += self._delete_hour(spaces, namespace_id, limit - removed)
        for table in space.tables():
            removed += self._delete_keys(table, list(islice(table, limit - removed)))
        if removed < limit:
            self.journal.delete(self._spaces, namespace_id)  # with the indexes of its rows
        return removed

    def clear(self) -> None:
        tables: tuple[dict[Any, Any], ...] = (
            self._spaces,
            self._recent,
            self._usage,
            self._namespaces,
        )
        for table in tables:
            self._delete_keys(table, list(table))
        self._expiries.clear()

"""Tables as dictionaries, with a journal that can undo a failed transaction."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, cast

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.embedded.tables import NO_ENTITY, BucketRow
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity, Namespace

_ABSENT = object()
NEVER_MS = 2**63  # later than any expiry


class Journal:
    """The previous value of every key that the transaction has changed, newest last."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self.entries.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def delete(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            self.entries.append((table, key, table[key]))
            del table[key]

    def undo(self) -> None:
        for table, key, before in reversed(self.entries):
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
        self.entries.clear()


class MemoryTables:
    """Keys are tuples that start with the namespace id."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._buckets: dict[tuple[str, str, str], BucketImage] = {}
        self._expiries: list[tuple[int, tuple[str, str, str]]] = []
        self._scheduled: dict[tuple[str, str, str], int] = {}  # the valid entry of each in the heap
        self._usage: dict[tuple[str, str, str, int], WindowUsage] = {}
        self._configs: dict[tuple[str, str, str], LevelConfig] = {}
        self._versions: dict[tuple[str], int] = {}
        self._entities: dict[tuple[str, str], Entity] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._audit: dict[tuple[str, str, str], AuditEvent] = {}
        self._documents: dict[tuple[str, str], dict[str, Any]] = {}

    # --- buckets

    def get_bucket(self, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
        return self._buckets.get((namespace_id, entity_id, resource))

    def put_bucket(
        self, namespace_id: str, entity_id: str, resource: str, image: BucketImage
    ) -> None:
        key = (namespace_id, entity_id, resource)
        if image.expires_ms is not None and image.expires_ms < self._scheduled.get(key, NEVER_MS):
            self._schedule(key, image.expires_ms)
        self.journal.put(self._buckets, key, image)

    def delete_bucket(self, namespace_id: str, entity_id: str, resource: str) -> None:
        self.journal.delete(self._buckets, (namespace_id, entity_id, resource))

    def buckets(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> list[BucketRow]:
        if entity_id is not None and resource is not None:
            image = self.get_bucket(namespace_id, entity_id, resource)
            return [] if image is None else [BucketRow(namespace_id, entity_id, resource, image)]
        return sorted(
            BucketRow(*key, image)
            for key, image in self._buckets.items()
            if _matches(key, namespace_id, entity_id, resource)
        )

    def expired_buckets(self, now_ms: int, limit: int) -> list[BucketRow]:
        expired: list[BucketRow] = []
        while self._expiries and self._expiries[0][0] <= now_ms and len(expired) < limit:
            at_ms, key = heappop(self._expiries)
            if self._scheduled.get(key) != at_ms:
                continue  # outdated: it was scheduled again, for an earlier moment
            image = self._buckets.get(key)
            if image is None or image.expires_ms is None:
                del self._scheduled[key]
                continue
            # It stays scheduled until it is deleted; its expiry may have been extended meanwhile.
            self._schedule(key, max(image.expires_ms, now_ms + 1))
            if image.expires_ms <= now_ms:
                expired.append(BucketRow(*key, image))
        return expired

    def _schedule(self, key: tuple[str, str, str], at_ms: int) -> None:
        self._scheduled[key] = at_ms
        heappush(self._expiries, (at_ms, key))

    # --- usage

    def add_usage(
        self, namespace_id: str, entity_id: str, resource: str, usage: WindowUsage
    ) -> None:
        key = (namespace_id, entity_id, resource, usage.hour)
        before = self._usage.get(key)
        self.journal.put(self._usage, key, usage if before is None else before.plus(usage))

    def usage(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[BucketHour]:
        hours = [
            BucketHour(key[1], key[2], usage)
            for key, usage in self._usage.items()
            if from_hour <= usage.hour < to_hour
            and _matches(key, namespace_id, entity_id, resource)
        ]
        return iter(sorted(hours, key=lambda row: row.usage.hour))

    def delete_usage(self, before_hour: int, limit: int) -> int:
        return self._delete_keys(
            self._usage, [k for k in self._usage if k[3] < before_hour][:limit]
        )

    # --- configuration

    def get_config(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        return self._configs.get((namespace_id, entity_id, resource))

    def put_config(
        self, namespace_id: str, entity_id: str, resource: str, config: LevelConfig
    ) -> None:
        self.journal.put(self._configs, (namespace_id, entity_id, resource), config)

    def delete_config(self, namespace_id: str, entity_id: str, resource: str) -> None:
        self.journal.delete(self._configs, (namespace_id, entity_id, resource))

    def config_resources(self, namespace_id: str, entity_id: str) -> list[str]:
        return sorted(key[2] for key in self._configs if key[:2] == (namespace_id, entity_id))

    def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        entity_ids = sorted(
            key[1]
            for key in self._configs
            if key[0] == namespace_id and key[2] == resource and key[1] > after
        )
        return entity_ids[:limit]

    def entity_config_resources(self, namespace_id: str) -> list[str]:
        return sorted({k[2] for k in self._configs if k[0] == namespace_id and k[1] != NO_ENTITY})

    def config_version(self, namespace_id: str) -> int:
        return self._versions.get((namespace_id,), 0)

    def bump_config_version(self, namespace_id: str) -> None:
        self.journal.put(self._versions, (namespace_id,), self.config_version(namespace_id) + 1)

    # --- entities

    def get_entity(self, namespace_id: str, entity_id: str) -> Entity | None:
        entity = self._entities.get((namespace_id, entity_id))
        return None if entity is None else _copied(entity)

    def put_entity(self, namespace_id: str, entity: Entity) -> None:
        self.journal.put(self._entities, (namespace_id, entity.id), _copied(entity))

    def delete_entity(self, namespace_id: str, entity_id: str) -> None:
        self.journal.delete(self._entities, (namespace_id, entity_id))

    def entities(
        self, namespace_id: str, parent_id: str | None, after: str, limit: int | None
    ) -> list[Entity]:
        keys = sorted(
            key
            for key, entity in self._entities.items()
            if key[0] == namespace_id
            and key[1] > after
            and (parent_id is None or entity.parent_id == parent_id)
        )
        return [_copied(self._entities[key]) for key in keys[:limit]]

    # --- namespaces

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

    def purge_rows(self, namespace_id: str, limit: int) -> int:
        removed = 0
        for table in self._owned():
            keys = [key for key in table if key[0] == namespace_id][: limit - removed]
            removed += self._delete_keys(table, keys)
        return removed

    def clear(self) -> None:
        for table in (*self._owned(), cast(dict[Any, Any], self._namespaces)):
            self._delete_keys(table, list(table))

    def _owned(self) -> tuple[dict[Any, Any], ...]:
        return cast(
            tuple[dict[Any, Any], ...],
            (
                self._buckets,
                self._usage,
                self._configs,
                self._versions,
                self._entities,
                self._audit,
                self._documents,
            ),
        )

    # --- audit

    def add_audit(self, namespace_id: str, event: AuditEvent) -> None:
        key = (namespace_id, event.entity_id, event.event_id)
        self.journal.put(self._audit, key, deepcopy(event))

    def audit(
        self, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        events = [
            event
            for key, event in self._audit.items()
            if key[:2] == (namespace_id, entity_id)
            and (before_event_id is None or key[2] < before_event_id)
        ]
        newest = sorted(events, key=lambda event: event.event_id, reverse=True)[:limit]
        return deepcopy(newest)

    def delete_audit(self, before_event_id: str, limit: int) -> int:
        return self._delete_keys(
            self._audit, [k for k in self._audit if k[2] < before_event_id][:limit]
        )

    # --- documents

    def get_document(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        return deepcopy(self._documents.get((namespace_id, key)))

    def put_document(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        self.journal.put(self._documents, (namespace_id, key), deepcopy(value))

    def _delete_keys(self, table: dict[Any, Any], keys: list[Any]) -> int:
        for key in keys:
            self.journal.delete(table, key)
        return len(keys)


def _copied(entity: Entity) -> Entity:
    """Copy the metadata, so that a caller that changes it does not change the store."""
    return replace(entity, metadata=dict(entity.metadata))


def _matches(
    key: tuple[Any, ...], namespace_id: str, entity_id: str | None, resource: str | None
) -> bool:
    return (
        key[0] == namespace_id
        and (entity_id is None or key[1] == entity_id)
        and (resource is None or key[2] == resource)
    )

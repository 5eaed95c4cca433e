"""Tables as dictionaries, with a journal that can undo a failed transaction.

The garbage collector visits every object that may refer to another one, and stops the process
meanwhile: with a million buckets for most of a second. So rows are kept as bytes, which it does
not visit; only buckets that were used lately are kept as objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from copy import deepcopy
from heapq import heappop, heappush, merge, nlargest, nsmallest
from itertools import islice
from typing import Any

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.usage import BucketHour, WindowUsage
from zae_limiter.embedded.memory import rows as stored
from zae_limiter.embedded.tables import NO_ENTITY, BucketRow
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity, Namespace

_ABSENT = object()
NEVER_MS = 2**63  # later than any expiry
PAGE = 500  # rows of one step of a listing: about a millisecond
SORTED_AT_ONCE = 10_000  # ids: about 5 ms
MAX_RECENT = 8192  # buckets kept as objects: the garbage collector visits them in 5 ms
PACKED_AT_ONCE = 1024  # of these, when there are too many: about 2 ms

BucketKey = tuple[str, str, str]


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


class _SortedIds:
    """Ids in order, for listings by page; those that no longer exist are left out when read."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._new: list[str] = []

    def add(self, entity_id: str) -> None:
        self._new.append(entity_id)

    def after(self, entity_id: str, limit: int | None, existing: Iterable[str]) -> list[str]:
        """List at most ``limit`` existing ids that come after ``entity_id``."""
        if self._new:
            self._ids += self._new
            self._new = []
            self._ids = sorted(set(self._ids).intersection(existing))
        page: list[str] = []
        at = bisect_right(self._ids, entity_id)
        while at < len(self._ids) and (limit is None or len(page) < limit):
            if self._ids[at] in existing:
                page.append(self._ids[at])
            at += 1
        return page


class _Space:
    """The rows of one namespace, by what they are asked for."""

    def __init__(self) -> None:
        # By resource and entity. Empty bytes stand for a bucket that is kept as an object.
        self.buckets: dict[str, dict[str, bytes]] = {}
        # By resource and entity. Defaults are objects: every resolution reads them.
        self.configs: dict[str, dict[str, LevelConfig | bytes]] = {}
        self.configured: dict[str, _SortedIds] = {}
        self.version: dict[str, int] = {}
        self.entities: dict[str, bytes] = {}
        self.child_ids: dict[str, _SortedIds] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.audit: dict[str, dict[str, bytes]] = {}  # by subject and event id
        self.documents: dict[str, dict[str, Any]] = {}

    def tables(self) -> Iterator[dict[Any, Any]]:
        """Iterate over the dictionaries that hold rows, buckets excepted."""
        yield from self.configs.values()
        yield from (self.version, self.entities, self.documents)
        yield from self.audit.values()


class MemoryTables:
    """The tables that ``embedded.tables.Tables`` describes, in dictionaries."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._spaces: dict[str, _Space] = {}
        self._recent: dict[BucketKey, BucketImage] = {}
        self._expiries: list[tuple[int, BucketKey]] = []
        self._scheduled: dict[BucketKey, int] = {}  # the valid entry of each in the heap
        # By hour, namespace, resource and entity: queries and deletion go by the hour.
        self._usage: dict[int, dict[str, dict[str, dict[str, bytes]]]] = {}
        self._events: deque[tuple[str, str, str]] = deque()  # id, namespace, subject; oldest first
        self._namespaces: dict[str, Namespace] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether to call ``pack``."""
        return len(self._recent) >= MAX_RECENT

    def pack(self) -> None:
        """Turn the buckets that became recent first into bytes. Not inside a transaction."""
        for key, image in list(islice(self._recent.items(), PACKED_AT_ONCE)):
            namespace_id, entity_id, resource = key
            self._spaces[namespace_id].buckets[resource][entity_id] = stored.pack_bucket(image)
            del self._recent[key]

    def _space(self, namespace_id: str) -> _Space:
        space = self._spaces.get(namespace_id)
        if space is None:
            space = self._spaces[namespace_id] = _Space()
        return space

    # --- buckets

    def get_bucket(self, namespace_id: str, entity_id: str, resource: str) -> BucketImage | None:
        image = self._recent.get((namespace_id, entity_id, resource))
        if image is not None:
            return image
        space = self._spaces.get(namespace_id)
        entities = None if space is None else space.buckets.get(resource)
        packed = None if entities is None else entities.get(entity_id)
        return None if packed is None else stored.unpack_bucket(packed)

    def put_bucket(
        self, namespace_id: str, entity_id: str, resource: str, image: BucketImage
    ) -> None:
        key = (namespace_id, entity_id, resource)
        expires_ms = image.expires_ms
        if expires_ms is not None and expires_ms < self._scheduled.get(key, NEVER_MS):
            self._schedule(key, expires_ms)
        if key not in self._recent:
            entities = self._space(namespace_id).buckets.get(resource)
            if entities is None:
                entities = {}
                self.journal.put(self._space(namespace_id).buckets, resource, entities)
            if entity_id not in entities:
                self.journal.put(entities, entity_id, b"")
        self.journal.put(self._recent, key, image)

    def delete_bucket(self, namespace_id: str, entity_id: str, resource: str) -> None:
        by_resource = self._space(namespace_id).buckets
        entities = by_resource.get(resource)
        if entities is not None:
            self.journal.delete(self._recent, (namespace_id, entity_id, resource))
            self.journal.delete(entities, entity_id)
            if not entities:
                self.journal.delete(by_resource, resource)

    def buckets(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[BucketRow]:
        by_resource = self._space(namespace_id).buckets
        resources = by_resource if resource is None else {resource: by_resource.get(resource, {})}
        keys = (
            (each, name)
            for name, entities in resources.items()
            for each in (entities if entity_id is None else entities.keys() & {entity_id})
            if after is None or (each, name) > after
        )
        page = sorted(keys) if limit is None else nsmallest(limit, keys)
        return list(self._rows(namespace_id, page))

    def bucket_resources(self, namespace_id: str) -> list[str]:
        return sorted(self._space(namespace_id).buckets)

    def entity_buckets(self, namespace_id: str, entity_id: str) -> list[BucketRow]:
        resources = sorted(self._space(namespace_id).buckets)
        return list(self._rows(namespace_id, ((entity_id, resource) for resource in resources)))

    def bucket_pages(
        self, namespace_id: str, entity_id: str | None, resource: str | None
    ) -> Iterator[list[BucketRow]]:
        if entity_id is not None:
            rows = self.entity_buckets(namespace_id, entity_id)
            yield [row for row in rows if resource is None or row.resource == resource]
            return
        assert resource is not None
        entity_ids = list(self._space(namespace_id).buckets.get(resource, ()))
        parts = []
        for at in range(0, len(entity_ids), SORTED_AT_ONCE):
            parts.append(sorted(entity_ids[at : at + SORTED_AT_ONCE]))
            yield []
        in_order = merge(*parts)
        while page := list(islice(in_order, PAGE)):
            yield list(self._rows(namespace_id, ((each, resource) for each in page)))

    def _rows(self, namespace_id: str, keys: Iterable[tuple[str, str]]) -> Iterator[BucketRow]:
        for key in keys:
            image = self.get_bucket(namespace_id, *key)
            if image is not None:
                yield BucketRow(namespace_id, *key, image)

    def expired_buckets(self, now_ms: int, limit: int) -> list[BucketRow]:
        expired: list[BucketRow] = []
        while self._expiries and self._expiries[0][0] <= now_ms and len(expired) < limit:
            at_ms, key = heappop(self._expiries)
            if self._scheduled.get(key) != at_ms:
                continue  # outdated: it was scheduled again, for an earlier moment
            image = self.get_bucket(*key)
            if image is None or image.expires_ms is None:
                del self._scheduled[key]
                continue
            # It stays scheduled until it is deleted; its expiry may have been extended meanwhile.
            self._schedule(key, max(image.expires_ms, now_ms + 1))
            if image.expires_ms <= now_ms:
                expired.append(BucketRow(*key, image))
        return expired

    def _schedule(self, key: BucketKey, at_ms: int) -> None:
        self._scheduled[key] = at_ms
        heappush(self._expiries, (at_ms, key))

    # --- usage

    def add_usage(
        self, namespace_id: str, entity_id: str, resource: str, usage: WindowUsage
    ) -> None:
        hour = usage.hour
        by_resource = self._usage.setdefault(hour, {}).setdefault(namespace_id, {})
        entities = by_resource.setdefault(resource, {})
        before = entities.get(entity_id)
        total = usage if before is None else stored.unpack_usage(hour, before).plus(usage)
        self.journal.put(entities, entity_id, stored.pack_usage(total))

    def usage_pages(
        self,
        namespace_id: str,
        entity_id: str | None,
        resource: str | None,
        from_hour: int,
        to_hour: int,
    ) -> Iterator[list[BucketHour]]:
        for hour in sorted(each for each in self._usage if from_hour <= each < to_hour):
            by_resource = self._usage.get(hour, {}).get(namespace_id, {})
            for name in list(by_resource) if resource is None else (resource,):
                entities = by_resource.get(name, {})
                ids = list(entities) if entity_id is None else [entity_id]
                for at in range(0, len(ids), PAGE):
                    yield [
                        BucketHour(each, name, stored.unpack_usage(hour, entities[each]))
                        for each in ids[at : at + PAGE]
                        if each in entities
                    ]

    def delete_usage(self, before_hour: int, limit: int) -> int:
        removed = 0
        while removed < limit and self._usage and (hour := min(self._usage)) < before_hour:
            spaces = self._usage[hour]
            for namespace_id in list(spaces):
                removed += self._delete_hour(spaces, namespace_id, limit - removed)
            if not spaces:
                self.journal.delete(self._usage, hour)
        return removed

    def _delete_hour(
        self, spaces: dict[str, dict[str, dict[str, bytes]]], namespace_id: str, limit: int
    ) -> int:
        """Delete rows of one hour, and the dictionaries that are empty then."""
        removed = 0
        by_resource = spaces.get(namespace_id, {})
        for resource in list(by_resource):
            entities = by_resource[resource]
            removed += self._delete_keys(entities, list(islice(entities, limit - removed)))
            if entities:
                return removed
            self.journal.delete(by_resource, resource)
        self.journal.delete(spaces, namespace_id)
        return removed

    # --- configuration

    def get_config(self, namespace_id: str, entity_id: str, resource: str) -> LevelConfig | None:
        space = self._spaces.get(namespace_id)
        entities = None if space is None else space.configs.get(resource)
        config = None if entities is None else entities.get(entity_id)
        return stored.unpack_config(config) if isinstance(config, bytes) else config

    def put_config(
        self, namespace_id: str, entity_id: str, resource: str, config: LevelConfig
    ) -> None:
        space = self._space(namespace_id)
        entities = space.configs.setdefault(resource, {})
        if entity_id != NO_ENTITY:
            space.configured.setdefault(resource, _SortedIds()).add(entity_id)
        packed = config if entity_id == NO_ENTITY else stored.pack_config(config)
        self.journal.put(entities, entity_id, packed)

    def delete_config(self, namespace_id: str, entity_id: str, resource: str) -> None:
        self.journal.delete(self._space(namespace_id).configs.get(resource, {}), entity_id)

    def config_resources(self, namespace_id: str, entity_id: str) -> list[str]:
        configs = self._space(namespace_id).configs
        return sorted(resource for resource, ids in configs.items() if entity_id in ids)

    def configured_entities(
        self, namespace_id: str, resource: str, after: str, limit: int | None
    ) -> list[str]:
        space = self._space(namespace_id)
        if resource not in space.configured:
            return []
        return space.configured[resource].after(after, limit, space.configs[resource])

    def entity_config_resources(self, namespace_id: str) -> list[str]:
        configs = self._space(namespace_id).configs
        return sorted(name for name, ids in configs.items() if len(ids) > (NO_ENTITY in ids))

    def config_version(self, namespace_id: str) -> int:
        space = self._spaces.get(namespace_id)
        return 0 if space is None else space.version.get("", 0)

    def bump_config_version(self, namespace_id: str) -> None:
        version = self.config_version(namespace_id) + 1
        self.journal.put(self._space(namespace_id).version, "", version)

    # --- entities

    def get_entity(self, namespace_id: str, entity_id: str) -> Entity | None:
        space = self._spaces.get(namespace_id)
        packed = None if space is None else space.entities.get(entity_id)
        return None if packed is None else stored.unpack_entity(entity_id, packed)

    def put_entity(self, namespace_id: str, entity: Entity) -> None:
        space = self._space(namespace_id)
        self.delete_entity(namespace_id, entity.id)  # from the children of its parent
        self.journal.put(space.entities, entity.id, stored.pack_entity(entity))
        if entity.parent_id is not None:
            children = space.children.setdefault(entity.parent_id, {})
            self.journal.put(children, entity.id, None)
            space.child_ids.setdefault(entity.parent_id, _SortedIds()).add(entity.id)

    def delete_entity(self, namespace_id: str, entity_id: str) -> None:
        space, entity = self._space(namespace_id), self.get_entity(namespace_id, entity_id)
        self.journal.delete(space.entities, entity_id)
        if entity is not None and entity.parent_id is not None:
            self.journal.delete(space.children[entity.parent_id], entity_id)

    def entities(
        self, namespace_id: str, parent_id: str, after: str, limit: int | None
    ) -> list[Entity]:
        space = self._space(namespace_id)
        ids = []
        if parent_id in space.child_ids:
            ids = space.child_ids[parent_id].after(after, limit, space.children[parent_id])
        return [stored.unpack_entity(each, space.entities[each]) for each in ids]

    def entities_in_use(self, namespace_id: str, after: str, limit: int | None) -> list[Entity]:
        space = self._space(namespace_id)
        ids = {
            each
            for table in (space.entities, *space.buckets.values())
            for each in table
            if each > after
        }
        page = sorted(ids) if limit is None else nsmallest(limit, ids)
        return [self.get_entity(namespace_id, each) or Entity(each) for each in page]

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

    # --- audit

    def add_audit(self, namespace_id: str, event: AuditEvent) -> None:
        events = self._space(namespace_id).audit.setdefault(event.entity_id, {})
        self.journal.put(events, event.event_id, stored.pack_event(event))
        self._events.append((event.event_id, namespace_id, event.entity_id))

    def audit(
        self, namespace_id: str, entity_id: str | None, before_event_id: str | None, limit: int
    ) -> list[AuditEvent]:
        space = self._space(namespace_id)
        subjects = space.audit.values() if entity_id is None else [space.audit.get(entity_id, {})]
        newest = nlargest(
            limit,
            (
                (event_id, packed)
                for events in subjects
                for event_id, packed in events.items()
                if before_event_id is None or event_id < before_event_id
            ),
        )
        return [stored.unpack_event(packed) for _, packed in newest]

    def delete_audit(self, before_event_id: str, limit: int) -> int:
        removed = 0
        while removed < limit and self._events and self._events[0][0] < before_event_id:
            event_id, namespace_id, subject = self._events[0]
            subjects = self._space(namespace_id).audit
            events = subjects.get(subject, {})
            self.journal.delete(events, event_id)
            if not events:
                self.journal.delete(subjects, subject)
            self._events.popleft()
            removed += 1
        return removed

    # --- documents

    def get_document(self, namespace_id: str, key: str) -> dict[str, Any] | None:
        return deepcopy(self._space(namespace_id).documents.get(key))

    def put_document(self, namespace_id: str, key: str, value: dict[str, Any]) -> None:
        self.journal.put(self._space(namespace_id).documents, key, deepcopy(value))

    def _delete_keys(self, table: dict[Any, Any], keys: list[Any]) -> int:
        for key in keys:
            self.journal.delete(table, key)
        return len(keys)

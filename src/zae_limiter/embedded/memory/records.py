"""Configuration, entities, audit events and documents in memory."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from heapq import nlargest
from typing import Any

from zae_limiter.embedded.memory import rows as stored
from zae_limiter.embedded.memory.partitioned import Partitioned
from zae_limiter.embedded.memory.spaces import SortedIds, SpaceTables
from zae_limiter.embedded.tables import NO_ENTITY
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.config import LevelConfig
from zae_limiter.models.entity import Entity


class RecordTables(SpaceTables):
    """Limits, entities, audit events and documents."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[tuple[str, str, str]] = deque()  # id, namespace, subject; oldest first

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
        entities = space.configs.setdefault(resource, Partitioned())
        if entity_id != NO_ENTITY:
            space.configured.setdefault(resource, SortedIds()).add(entity_id)
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
        return space.configured[resource].after(
            after, limit, space.configs[resource], len(space.configs[resource])
        )

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
        space.note_use(entity.id)
        if entity.parent_id is not None:
            children = space.children.setdefault(entity.parent_id, Partitioned())
            self.journal.put(children, entity.id, None)
            space.child_ids.setdefault(entity.parent_id, SortedIds()).add(entity.id)

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
            children = space.children[parent_id]
            ids = space.child_ids[parent_id].after(after, limit, children, len(children))
        return [stored.unpack_entity(each, space.entities[each]) for each in ids]

    def entities_in_use(self, namespace_id: str, after: str, limit: int | None) -> list[Entity]:
        space = self._space(namespace_id)
        size = len(space.entities) + sum(map(len, space.buckets.values()))
        page = space.ids_in_use().after(after, limit, space, size)
        return [self.get_entity(namespace_id, each) or Entity(each) for each in page]

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

"""The actions of a batch of configuration changes, planned from the items that were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.admission.configuration import ConfigBatch, revise_place
from zae_limiter.items.stored import (
    audit,
    config_writes,
    configs,
    entities,
    keys,
    registries,
    system,
)
from zae_limiter.items.stored import guarded_writes as guarded
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.keys import Key
from zae_limiter.items.stored.update import ItemWrite
from zae_limiter.models.audit import AuditedChange, AuditEvent
from zae_limiter.models.config import LevelChange, LevelConfig
from zae_limiter.models.entity import Entity


class BatchActions(NamedTuple):
    """The actions of a batch, the number of changes, and the entities that they change."""

    actions: list[ItemWrite]
    changed: int
    places: dict[str, Entity | None]


class BatchPlan:
    """Plans one attempt of a batch: reads ``keys``, then makes the actions from these items."""

    def __init__(self, namespace_id: str, batch: ConfigBatch, audit_days: int) -> None:
        self._namespace_id = namespace_id
        self._batch = batch
        self._audit_days = audit_days
        self._registries = (
            keys.resources(namespace_id),
            keys.entity_config_resources(namespace_id),
        )

    def keys(self) -> Iterable[Key]:
        """Return the keys of all items that the actions depend on."""
        namespace_id, batch = self._namespace_id, self._batch
        yield keys.system_config(namespace_id)
        yield from self._registries
        yield from (configs.key(namespace_id, change.level) for change, _ in batch.levels)
        yield from (keys.entity(namespace_id, change.entity_id) for change, _ in batch.places)
        if batch.guard is not None:
            yield keys.record(namespace_id, batch.guard.key)

    def is_refused(self, items: Mapping[Key, Item]) -> bool:
        """Return whether the document of the guard has another revision."""
        guard = self._batch.guard
        if guard is None:
            return False
        document = items.get(keys.record(self._namespace_id, guard.key))
        return system.document_revision(document) != guard.revision

    def actions(self, items: Mapping[Key, Item]) -> BatchActions:
        """Return the actions, with the condition that the items are still as they were read."""
        events: list[AuditEvent] = []
        planned, count = self._level_actions(items, events)
        places: dict[str, Entity | None] = {}
        for change, audited in self._batch.places:
            item = items.get(keys.entity(self._namespace_id, change.entity_id))
            before = None if item is None else entities.decode(item)
            revised = revise_place(change, before, audited.now_ms)
            if revised.event is None:
                continue
            count += 1
            places[change.entity_id] = revised.after
            planned.append(self._place(revised.after, item, audited))
            events.append(audited.event(*revised.event))
        planned += [audit.log(self._namespace_id, event, self._audit_days) for event in events]
        if planned and self._batch.guard is not None:
            guard_key = keys.record(self._namespace_id, self._batch.guard.key)
            planned.append(guarded.check_revision(guard_key, self._batch.guard.revision))
        return BatchActions(planned, count, places)

    def _level_actions(
        self, items: Mapping[Key, Item], events: list[AuditEvent]
    ) -> tuple[list[ItemWrite], int]:
        """Return the actions on levels and the number of changes; append their events."""
        planned: list[ItemWrite] = []
        deltas: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        count, version = 0, config_writes.version_bump(self._namespace_id)
        for change, audited in self._batch.levels:
            level, item = change.level, items.get(configs.key(self._namespace_id, change.level))
            revised = configs.revise(change, item)
            if revised.event is None:
                continue
            count, after = count + 1, revised.after
            events.append(audited.event(*revised.event))
            if level.is_system:
                version = config_writes.system_update(
                    self._namespace_id, item, after, audited.event_id
                )
                continue
            planned.append(self._level(change, item, after, audited))
            had_limits = item is not None and configs.is_configured(item)
            deltas[bool(level.entity_id)][level.resource] += (after is not None) - had_limits
        if count:
            planned.append(version)
        for registry, delta in zip(self._registries, deltas, strict=True):
            before = items.get(registry)
            recount = registries.recount_resources(self._namespace_id, registry, before, delta)
            if recount is not None:
                planned.append(recount)
        return planned, count

    def _level(
        self,
        change: LevelChange,
        before: Item | None,
        after: LevelConfig | None,
        audited: AuditedChange,
    ) -> ItemWrite:
        if after is not None:
            item = config_writes.encode(self._namespace_id, change.level, after, audited.event_id)
            return guarded.put(item, before)
        assert before is not None, "only a stored item is deleted"
        return guarded.delete(before)

    def _place(
        self, after: Entity | None, before: Item | None, audited: AuditedChange
    ) -> ItemWrite:
        if after is not None:
            return guarded.put(entities.encode(self._namespace_id, after, audited.event_id), before)
        assert before is not None, "only a stored item is deleted"
        return guarded.delete(before)

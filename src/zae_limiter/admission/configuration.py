"""What a change of configuration means: the content after it, and the event that reports it.

It is about configuration levels (limits, outage policy, switch), entities (registration, parent)
and namespaces. A store reads what is there before a change, asks here, and writes the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from zae_limiter.exceptions import (
    EntityExistsError,
    LimitsChangedError,
    NamespaceNotFoundError,
    NamespaceStateError,
)
from zae_limiter.models.audit import AuditAction, AuditedChange
from zae_limiter.models.config import KEEP, Keep, LevelChange, LevelConfig
from zae_limiter.models.entity import Entity, Namespace
from zae_limiter.models.switches import NO_MODE
from zae_limiter.models.timestamps import iso_from_ms

T = TypeVar("T")

Event = tuple[AuditAction, dict[str, Any]]  # action and details of an audit event

# DynamoDB takes 100 actions in a transaction. Four are for the batch: version, guard, and the two
# registries of resources. Each change takes two: its item and its audit event.
MAX_CHANGES = 48


class Revised(NamedTuple, Generic[T]):
    """A level or an entity after a change."""

    after: T | None  # None if nothing is left of it
    event: Event | None  # None if the change changes nothing; then nothing is written

    @property
    def is_changed(self) -> bool:
        return self.event is not None


# --- configuration levels


def revise_level(
    change: LevelChange, before: LevelConfig | None, *, is_damaged: bool = False
) -> Revised[LevelConfig]:
    """Return a level after a change; raise LimitsChangedError if others are stored.

    The limits of a damaged level cannot be read, and are missing in ``before``.
    """
    stored = before or LevelConfig(())
    if change.replaces is not None and set(change.replaces) != set(stored.limits):
        raise LimitsChangedError(tuple(map(str, stored.limits)))
    if change.if_missing and stored.limits:
        return Revised(before, None)
    after = _changed(stored, change)
    if after == before and not is_damaged:
        return Revised(after, None)
    previous = None if before is None else before.to_dict()
    return Revised(after, _level_event({"damaged": True} if is_damaged else previous, after))


def _changed(stored: LevelConfig, change: LevelChange) -> LevelConfig | None:
    limits, policy, switch = change.limits, change.on_unavailable, change.switch
    if isinstance(limits, Keep) or set(limits) == set(stored.limits):
        limits = stored.limits  # also if only the order differs
    if change.if_missing and stored.on_unavailable is not None:
        policy = KEEP
    if isinstance(policy, Keep):
        policy = stored.on_unavailable
    if isinstance(switch, Keep):
        switch = stored.switch
    after = LevelConfig(limits, policy, switch)
    return None if after.is_empty else after


def _level_event(before: dict[str, Any] | None, after: LevelConfig | None) -> Event:
    """Return the event of a level; ``before`` is its content as the log describes it."""
    described = {"limits": []} if after is None else after.to_dict()
    if _without_mode(before) == _without_mode(described):
        mode = described.get("mode") or NO_MODE
        return AuditAction.MODE_SET, {**mode, "previous": (before or {}).get("mode")}
    if _without_mode(described) == _without_mode(None):
        return AuditAction.LIMITS_DELETED, {"previous": before}
    return AuditAction.LIMITS_SET, {**described, "previous": before}


def _without_mode(described: dict[str, Any] | None) -> dict[str, Any]:
    content = {"limits": []} if described is None else described
    return {key: value for key, value in content.items() if key != "mode"}


# --- entities


class PlaceChange(NamedTuple):
    """A change of an entity's parent. An entity that is not registered yet is registered."""

    entity_id: str
    parent_id: str | None = None
    cascade: bool = False
    unregister: bool = False
    """The registration is deleted instead; limits and buckets of the entity stay."""
    keep_place: bool = False
    """A registered entity keeps its parent."""


def revise_place(change: PlaceChange, before: Entity | None, now_ms: int) -> Revised[Entity]:
    """Return an entity after a change of its place; None if it is not registered then."""
    if change.unregister:
        return Revised(None, None if before is None else _unregistered(before))
    if before is None:
        added = Entity(
            change.entity_id,
            parent_id=change.parent_id,
            cascade=change.cascade,
            created_at=iso_from_ms(now_ms),
        )
        return Revised(added, create_entity(added))
    after = replace(before, parent_id=change.parent_id, cascade=change.cascade)
    if change.keep_place or after == before:
        return Revised(before, None)
    return Revised(after, _placed(before, after))


def create_entity(entity: Entity, *, exists: bool = False) -> Event:
    """Return the event of a new entity; raise EntityExistsError if it is registered."""
    if exists:
        raise EntityExistsError(entity.id)
    return AuditAction.ENTITY_CREATED, {
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": entity.metadata,
    }


def entity_deleted(limits_of: list[str], buckets_of: list[str]) -> Event:
    """Return the event that an entity was deleted with its limits and buckets of resources."""
    return AuditAction.ENTITY_DELETED, {"limits_of": limits_of, "buckets_of": buckets_of}


def _placed(before: Entity, after: Entity) -> Event:
    previous = {"parent_id": before.parent_id, "cascade": before.cascade}
    details = {"parent_id": after.parent_id, "cascade": after.cascade, "previous": previous}
    return AuditAction.PARENT_SET, details


def _unregistered(before: Entity) -> Event:
    return AuditAction.ENTITY_UNREGISTERED, {"previous": {"parent_id": before.parent_id}}


# --- batches


class Guard(NamedTuple):
    """A document that must have this revision; otherwise the batch is not written."""

    key: str
    revision: str


def in_batches(changes: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the changes in order, in batches that DynamoDB writes in one transaction."""
    for start in range(0, len(changes), MAX_CHANGES):
        yield changes[start : start + MAX_CHANGES]


class ConfigBatch(NamedTuple):
    """At most ``MAX_CHANGES`` changes with their audit data, each of another level or entity."""

    levels: tuple[tuple[LevelChange, AuditedChange], ...]
    places: tuple[tuple[PlaceChange, AuditedChange], ...]
    guard: Guard | None = None

    @classmethod
    def of(
        cls,
        changes: list[LevelChange | PlaceChange],
        now_ms: int,
        principal: str | None,
        guard: Guard | None = None,
    ) -> ConfigBatch:
        """Prepare the audit events of the changes, once for all attempts."""
        assert len(changes) <= MAX_CHANGES, "the caller splits larger lists with in_batches"
        levels, places = [], []
        for change in changes:
            if isinstance(change, PlaceChange):
                places.append((change, AuditedChange.by(principal, change.entity_id, now_ms)))
            else:
                levels.append((change, AuditedChange.of_level(principal, change.level, now_ms)))
        return cls(tuple(levels), tuple(places), guard)


# --- namespaces: active, deleted, being purged, gone

ACTIVE, DELETED, PURGING = "active", "deleted", "purging"


def register_namespace(namespace_id: str, name: str, now_ms: int) -> tuple[Namespace, Event]:
    namespace = Namespace(namespace_id, name, ACTIVE, iso_from_ms(now_ms))
    return namespace, _namespace_event(namespace, AuditAction.NAMESPACE_REGISTERED)


def delete_namespace(before: Namespace | None, name: str, now_ms: int) -> tuple[Namespace, Event]:
    """Free the name of a namespace. Its data stays under its id until it is purged."""
    if before is None:
        raise NamespaceNotFoundError(name)
    after = replace(before, status=DELETED, deleted_at=iso_from_ms(now_ms))
    return after, _namespace_event(after, AuditAction.NAMESPACE_DELETED)


def recover_namespace(before: Namespace | None, namespace_id: str) -> tuple[Namespace, Event]:
    """Give a deleted namespace its name back, which must be free (``check_free``)."""
    if before is None:
        raise NamespaceNotFoundError(namespace_id)
    if before.status != DELETED:
        reason = f"is {before.status}; only a deleted one can be recovered"
        raise NamespaceStateError(namespace_id, reason)
    after = replace(before, status=ACTIVE, deleted_at=None)
    return after, _namespace_event(after, AuditAction.NAMESPACE_RECOVERED)


def check_free(namespace: Namespace, *, is_taken: bool) -> None:
    """Raise NamespaceStateError if another namespace has the name of a deleted one."""
    if is_taken:
        reason = f"its name {namespace.name!r} is in use; delete that namespace first"
        raise NamespaceStateError(namespace.namespace_id, reason)


def purge_namespace(before: Namespace) -> Namespace:
    """Return a deleted namespace as one that is being purged; such a one may be purged again."""
    if before.status == ACTIVE:
        reason = "is active; delete_namespace() it before a purge"
        raise NamespaceStateError(before.namespace_id, reason)
    return replace(before, status=PURGING)


def namespace_purged(before: Namespace) -> Event:
    """Return the event that the data of a namespace is gone, and its registration with it."""
    if before.status != PURGING:
        reason = f"is {before.status}; it is not being purged"
        raise NamespaceStateError(before.namespace_id, reason)
    return _namespace_event(before, AuditAction.NAMESPACE_PURGED)


def _namespace_event(namespace: Namespace, action: AuditAction) -> Event:
    return action, {"namespace_id": namespace.namespace_id}

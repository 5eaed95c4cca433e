"""A batch of configuration changes, which a store makes in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from zae_limiter.models.audit import AuditAction, AuditedChange, config_subject, parent_details
from zae_limiter.models.config import KEEP, ConfigLevel, Keep, LevelConfig, OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import NO_MODE, Switch
from zae_limiter.models.timestamps import iso_from_ms

T = TypeVar("T")

# DynamoDB takes 100 actions in a transaction. Four are for the batch: version, guard, and the two
# registries of resources. Each change takes two: its item and its audit event.
MAX_CHANGES = 48


class Guard(NamedTuple):
    """A document that must have this revision; otherwise the batch is not written."""

    key: str
    revision: str


class LevelChange(NamedTuple):
    """A change of the limits, the outage policy or the switch of one configuration level.

    KEEP leaves a part as it is. A level of which nothing remains is deleted.
    """

    level: ConfigLevel
    limits: tuple[Limit, ...] | Keep
    on_unavailable: OnUnavailable | Keep | None = None
    switch: Switch | Keep | None = KEEP

    def after(self, before: LevelConfig | None) -> LevelConfig | None:
        """Return the content of the level after the change; None if the level is deleted."""
        stored = before or LevelConfig(())
        limits = stored.limits if isinstance(self.limits, Keep) else self.limits
        policy = self.on_unavailable
        if isinstance(policy, Keep):
            policy = stored.on_unavailable
        switch = stored.switch if isinstance(self.switch, Keep) else self.switch
        after = LevelConfig(limits, policy, switch=switch)
        return None if after.is_empty else after.in_order_of(before)


class PlaceChange(NamedTuple):
    """A change of an entity's parent. An entity that is not registered yet is registered.

    With ``keep_place``, a registered entity keeps its parent. With ``unregister``, its registration
    is deleted instead; its limits and buckets stay.
    """

    entity_id: str
    parent_id: str | None = None
    cascade: bool = False
    unregister: bool = False
    keep_place: bool = False

    def after(self, before: Entity | None, now_ms: int) -> Entity | None:
        """Return the entity after the change; None if it is no longer registered."""
        if self.unregister:
            return None
        if before is None:
            return Entity(
                self.entity_id,
                parent_id=self.parent_id,
                cascade=self.cascade,
                created_at=iso_from_ms(now_ms),
            )
        if self.keep_place:
            return before
        return Entity(
            before.id,
            before.name,
            self.parent_id,
            self.cascade,
            before.metadata,
            before.created_at,
        )


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
                continue
            subject, resource = config_subject(change.level), change.level.resource or None
            audited = AuditedChange.by(principal, subject, now_ms, resource)
            levels.append((change, audited))
        return cls(tuple(levels), tuple(places), guard)

    @property
    def entity_ids(self) -> Iterator[str]:
        """The entities of all changes; the empty string for resource and system defaults."""
        yield from (change.level.entity_id for change, _ in self.levels)
        yield from (change.entity_id for change, _ in self.places)


def level_event(
    before: dict[str, Any] | None, after: LevelConfig | None
) -> tuple[AuditAction, dict[str, Any]]:
    """Return action and details of the event of a level; ``before`` is in the log's form."""
    described = None if after is None else after.to_dict()
    if _without_mode(before) == _without_mode(described):
        mode = (described or {}).get("mode") or NO_MODE
        return AuditAction.MODE_SET, {**mode, "previous": (before or {}).get("mode")}
    if _without_mode(described) == _without_mode(None):
        return AuditAction.LIMITS_DELETED, {"previous": before}
    return AuditAction.LIMITS_SET, {**(described or {}), "previous": before}


def _without_mode(described: dict[str, Any] | None) -> dict[str, Any]:
    content = {"limits": []} if described is None else described
    return {key: value for key, value in content.items() if key != "mode"}


def place_event(before: Entity | None, after: Entity | None) -> tuple[AuditAction, dict[str, Any]]:
    """Return action and details of the event of an entity's registration or parent."""
    if before is None and after is not None:
        return AuditAction.ENTITY_CREATED, {
            "name": after.name,
            "parent_id": after.parent_id,
            "cascade": after.cascade,
            "metadata": after.metadata,
        }
    if before is not None and after is not None:
        return AuditAction.PARENT_SET, parent_details(before, after)
    parent_id = None if before is None else before.parent_id
    return AuditAction.ENTITY_UNREGISTERED, {"previous": {"parent_id": parent_id}}

"""What a manifest manages: targets, the setting of each, and the changes between settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter_ops.manifest.declarations import LimitDecl, Limits, LimitsManifest

DIGEST_BYTES = 6  # tells a setting from the few others that its target ever had


class TargetKind(StrEnum):
    """What a target is, in the order in which targets are changed."""

    SYSTEM = "system"
    POLICY = "on_unavailable"
    RESOURCE = "resource"
    ENTITY = "entity"  # its registration, its parent, and whether it cascades
    ENTITY_LIMITS = "entity_limits"


class Target(NamedTuple):
    """One unit of configuration, which is managed as a whole or not at all."""

    kind: TargetKind
    entity_id: str = ""
    resource: str = ""

    def __str__(self) -> str:
        if self.kind is TargetKind.SYSTEM:
            return "system"
        if self.kind is TargetKind.POLICY:
            return "system on_unavailable"
        if self.kind is TargetKind.RESOURCE:
            return f"resource {self.resource}"
        if self.kind is TargetKind.ENTITY:
            return f"entity {self.entity_id}"
        return f"entity {self.entity_id} on {self.resource}"

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort defaults before exceptions, and entities before their limits."""
        return _ORDER[self.kind], self.entity_id, self.resource


SYSTEM = Target(TargetKind.SYSTEM)
POLICY = Target(TargetKind.POLICY)
_ORDER = {kind: position for position, kind in enumerate(TargetKind)}


class Setting(NamedTuple):
    """The content of one target; fields that its kind does not have are empty.

    ``is_described``: the entity has a name or metadata, which manifests do not manage.
    ``keeps_place``: a manifest wants the entity registered, whatever its parent is.
    """

    limits: tuple[Limit, ...] = ()
    on_unavailable: OnUnavailable | None = None
    parent: str | None = None
    cascade: bool = False
    is_described: bool = False
    keeps_place: bool = False

    def agrees(self, other: Setting | None) -> bool:
        """Whether the other has the wanted content, whatever the order of its limits."""
        return other is not None and (self.keeps_place or self.content() == other.content())

    def digest(self) -> str:
        """Return a short text that changes with the content."""
        return blake2b(repr(self.content()).encode(), digest_size=DIGEST_BYTES).hexdigest()

    def content(self) -> tuple[Any, ...]:
        """Return all that is managed, in an order that does not depend on how it was written."""
        if self.keeps_place:
            return ("registered",)
        limits = sorted(
            (limit.name, limit.capacity, limit.refill_amount, limit.refill_period_seconds)
            for limit in self.limits
        )
        policy = None if self.on_unavailable is None else self.on_unavailable.value
        return limits, policy, self.parent, self.cascade

    def to_dict(self, kind: TargetKind) -> dict[str, Any]:
        """Return the content as a manifest writes it."""
        if kind is TargetKind.POLICY:
            return {"on_unavailable": self.on_unavailable}
        if kind is TargetKind.ENTITY:
            if self.keeps_place:
                return {"registered": True}
            return {"parent": self.parent, "cascade": self.cascade}
        return {"limits": {limit.name: LimitDecl.of(limit).to_dict() for limit in self.limits}}


Settings = Mapping[Target, Setting]
ALONE = Setting()  # an entity without a parent
REGISTERED = Setting(keeps_place=True)  # an entity, whatever its parent is


class Action(StrEnum):
    """What a change does to its target."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One step of an apply: ``before`` and ``after`` are None where the target does not exist."""

    action: Action
    target: Target
    before: Setting | None = None
    after: Setting | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        kind = self.target.kind
        return {
            "action": self.action.value,
            "kind": kind.value,
            "entity_id": self.target.entity_id or None,
            "resource": self.target.resource or None,
            "before": None if self.before is None else self.before.to_dict(kind),
            "after": None if self.after is None else self.after.to_dict(kind),
        }


def wanted_settings(manifest: LimitsManifest) -> dict[Target, Setting]:
    """Return the setting that a manifest wants of each target that it names."""
    wanted: dict[Target, Setting] = {}
    if manifest.system is not None:
        if manifest.system.limits:
            wanted[SYSTEM] = Setting(_limits(manifest.system.limits))
        if manifest.system.on_unavailable is not None:
            wanted[POLICY] = Setting(on_unavailable=manifest.system.on_unavailable)
    for resource, declared in manifest.resources.items():
        target = Target(TargetKind.RESOURCE, resource=resource)
        wanted[target] = Setting(_limits(declared.limits))
    for entity_id in sorted(_registered(manifest)):
        wanted[Target(TargetKind.ENTITY, entity_id)] = REGISTERED
    for entity_id, entity in manifest.entities.items():
        if entity.has_place:
            place = Setting(parent=entity.parent, cascade=bool(entity.cascade))
            wanted[Target(TargetKind.ENTITY, entity_id)] = place
        for resource, declared in entity.resources.items():
            target = Target(TargetKind.ENTITY_LIMITS, entity_id, resource)
            wanted[target] = Setting(_limits(declared.limits))
    return wanted


def _registered(manifest: LimitsManifest) -> set[str]:
    """Return the entities that a manifest wants registered: those that say so, and parents."""
    entities = manifest.entities
    parents = {entity.parent for entity in entities.values() if entity.parent is not None}
    declared = {entity_id for entity_id, entity in entities.items() if entity.registered}
    refused = {entity_id for entity_id, entity in entities.items() if entity.registered is False}
    return declared | (parents - refused)


def _limits(declared: Limits) -> tuple[Limit, ...]:
    return tuple(limit.to_limit(name) for name, limit in sorted(declared.items()))

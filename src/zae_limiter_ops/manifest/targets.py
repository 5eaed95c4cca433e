"""Targets of a manifest, their settings, and changes of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.switches import Switch, SwitchMode
from zae_limiter_ops.manifest.declarations import LimitDecl, Limits, LimitsManifest

DIGEST_BYTES = 6  # enough to distinguish the few settings that a target ever has


class TargetKind(StrEnum):
    """The kind of a target; targets are listed in the order of these kinds."""

    SYSTEM = "system"
    POLICY = "on_unavailable"
    RESOURCE = "resource"
    ENTITY = "entity"  # its registration, its parent, and whether it cascades
    ENTITY_LIMITS = "entity_limits"
    MODE = "mode"  # of a resource, or of an entity on a resource


class Target(NamedTuple):
    """A unit of configuration. A manifest manages all of a target or nothing of it."""

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
        if self.kind is TargetKind.MODE:
            of_entity = f" of entity {self.entity_id}" if self.entity_id else ""
            return f"mode{of_entity} on {self.resource}"
        return f"entity {self.entity_id} on {self.resource}"

    @property
    def order(self) -> tuple[int, str, str]:
        """The sort key: defaults come before the limits of entities, and entities before limits."""
        return _ORDER[self.kind], self.entity_id, self.resource


SYSTEM = Target(TargetKind.SYSTEM)
POLICY = Target(TargetKind.POLICY)
_ORDER = {kind: position for position, kind in enumerate(TargetKind)}


class Setting(NamedTuple):
    """The content of a target; fields that do not apply to the target's kind are empty.

    ``is_described``: the entity has a name or metadata, which manifests do not manage.
    ``keeps_place``: the manifest wants the entity registered, with any parent or none.
    ``enforces``: the manifest wants a resource without a mode, whose limits are enforced.
    """

    limits: tuple[Limit, ...] = ()
    on_unavailable: OnUnavailable | None = None
    parent: str | None = None
    cascade: bool = False
    is_described: bool = False
    keeps_place: bool = False
    switch: Switch | None = None
    enforces: bool = False

    def agrees(self, other: Setting | None) -> bool:
        """Return whether the other setting has the wanted content, in any order of limits."""
        if self.enforces:
            return other is None
        return other is not None and (self.keeps_place or self.content() == other.content())

    def digest(self) -> str:
        """Return a short digest of the content."""
        return blake2b(repr(self.content()).encode(), digest_size=DIGEST_BYTES).hexdigest()

    def content(self) -> tuple[Any, ...]:
        """Return the managed values, with the limits sorted by name."""
        if self.keeps_place:
            return ("registered",)
        if self.enforces or self.switch is not None:
            return ("mode", self._mode())
        limits = sorted(limit.stored() for limit in self.limits)
        policy = None if self.on_unavailable is None else self.on_unavailable.value
        return limits, policy, self.parent, self.cascade

    def to_dict(self, kind: TargetKind) -> dict[str, Any]:
        """Return the content in the form of a manifest."""
        if kind is TargetKind.POLICY:
            return {"on_unavailable": self.on_unavailable}
        if kind is TargetKind.MODE:
            return {"mode": self._mode()}
        if kind is TargetKind.ENTITY:
            if self.keeps_place:
                return {"registered": True}
            return {"parent": self.parent, "cascade": self.cascade}
        return {"limits": {limit.name: LimitDecl.of(limit).to_dict() for limit in self.limits}}

    def _mode(self) -> str:
        return SwitchMode.ENFORCE.value if self.switch is None else str(self.switch)


Settings = Mapping[Target, Setting]
ALONE = Setting()  # an entity without a parent
REGISTERED = Setting(keeps_place=True)  # a registered entity with any parent or none


class Action(StrEnum):
    """The action of a change on its target."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a target. ``before`` or ``after`` is None if the target does not exist then."""

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
    """Return the declared setting of each target of a manifest."""
    wanted: dict[Target, Setting] = {}
    if manifest.system is not None:
        if manifest.system.limits:
            wanted[SYSTEM] = Setting(_limits(manifest.system.limits))
        if manifest.system.on_unavailable is not None:
            wanted[POLICY] = Setting(on_unavailable=manifest.system.on_unavailable)
    for resource, declared in manifest.resources.items():
        if declared.limits:
            target = Target(TargetKind.RESOURCE, resource=resource)
            wanted[target] = Setting(_limits(declared.limits))
        if declared.mode is not None:
            enforces = declared.mode.mode is SwitchMode.ENFORCE
            mode = Setting(enforces=True) if enforces else Setting(switch=declared.mode)
            wanted[Target(TargetKind.MODE, resource=resource)] = mode
    for entity_id in sorted(_registered(manifest)):
        wanted[Target(TargetKind.ENTITY, entity_id)] = REGISTERED
    for entity_id, entity in manifest.entities.items():
        if entity.has_place:
            place = Setting(parent=entity.parent, cascade=bool(entity.cascade))
            wanted[Target(TargetKind.ENTITY, entity_id)] = place
        for resource, declared in entity.resources.items():
            if declared.limits:
                target = Target(TargetKind.ENTITY_LIMITS, entity_id, resource)
                wanted[target] = Setting(_limits(declared.limits))
            if declared.mode is not None:
                target = Target(TargetKind.MODE, entity_id, resource)
                wanted[target] = Setting(switch=declared.mode)
    return wanted


def _registered(manifest: LimitsManifest) -> set[str]:
    """Return the entities to register: those with ``registered: true``, and parents."""
    entities = manifest.entities
    parents = {entity.parent for entity in entities.values() if entity.parent is not None}
    declared = {entity_id for entity_id, entity in entities.items() if entity.registered}
    refused = {entity_id for entity_id, entity in entities.items() if entity.registered is False}
    return declared | (parents - refused)


def _limits(declared: Limits) -> tuple[Limit, ...]:
    return tuple(limit.to_limit(name) for name, limit in sorted(declared.items()))

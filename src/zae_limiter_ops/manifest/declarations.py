"""The declarations of a manifest: limits of the system, of resources and of entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zae_limiter.models.config import OnUnavailable
from zae_limiter.models.limit import DEFAULT_LEASE_TTL, Limit
from zae_limiter.models.notation import NEVER
from zae_limiter.models.quota_fields import quota_fields, quota_from
from zae_limiter.models.switches import Switch

DEFAULT_PERIOD = 60  # seconds
ANY_NAME = "limit"  # a declaration gets its name from its key in the manifest

Limits = Mapping[str, "LimitDecl"]


@dataclass(frozen=True, slots=True)
class LimitDecl:
    """One limit: ``capacity`` is the rate, ``burst`` the capacity of the bucket.

    ``burst`` and ``refill_amount`` default to ``capacity``, ``refill_period`` to 60 seconds. A
    limit on calls in flight has ``concurrent`` instead, and ``lease_ttl``, by default 60 seconds. A
    quota, a budget or a soft limit is kept as it is, in ``terms``; its own name is not used.
    """

    capacity: int = 0
    burst: int | None = None
    refill_amount: int | None = None
    refill_period: int = DEFAULT_PERIOD
    concurrent: int | None = None
    lease_ttl: int | None = None
    terms: Limit | None = None

    @classmethod
    def of(cls, limit: Limit) -> LimitDecl:
        """Return the shortest declaration of a limit."""
        if limit.is_quota or limit.soft:
            return cls(terms=replace(limit, name=ANY_NAME))
        if limit.lease_ttl is not None:
            lease_ttl = None if limit.lease_ttl == DEFAULT_LEASE_TTL else limit.lease_ttl
            return cls(concurrent=limit.capacity, lease_ttl=lease_ttl)
        return cls(
            capacity=limit.refill_amount,
            burst=None if limit.capacity == limit.refill_amount else limit.capacity,
            refill_period=limit.refill_period_seconds,
        )

    def to_limit(self, name: str) -> Limit:
        """Return the declared limit under the given name."""
        if self.terms is not None:
            return replace(self.terms, name=name)
        if self.concurrent is not None:
            return Limit.concurrent(name, self.concurrent, self.lease_ttl or DEFAULT_LEASE_TTL)
        return Limit(
            name,
            self.burst or self.capacity,
            self.refill_amount or self.capacity,
            self.refill_period,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as a document, without fields that have their default."""
        if self.terms is not None:
            return _terms_document(self.terms)
        if self.concurrent is not None:
            slots = {"concurrent": self.concurrent}
            return slots if self.lease_ttl is None else {**slots, "lease_ttl": self.lease_ttl}
        written: dict[str, Any] = {"capacity": self.capacity}
        if self.burst is not None:
            written["burst"] = self.burst
        if self.refill_amount is not None:
            written["refill_amount"] = self.refill_amount
        if self.refill_period != DEFAULT_PERIOD:
            written["refill_period"] = self.refill_period
        return written


def declared_limit(name: str, document: Mapping[str, Any]) -> Limit:
    """Return the limit of a document that ``LimitDecl.to_dict`` has made."""
    if "quota" in document or "budget" in document:
        return quota_from({"name": name, **document})
    fields = dict(document)
    soft = bool(fields.pop("soft", False))
    return replace(LimitDecl(**fields).to_limit(name), soft=soft)


@dataclass(frozen=True, slots=True)
class SystemDecl:
    """Defaults of the namespace; the manifest does not manage empty limits or a policy of None."""

    limits: Limits = field(default_factory=dict)
    on_unavailable: OnUnavailable | None = None


@dataclass(frozen=True, slots=True)
class ResourceDecl:
    """The limits and the mode on one resource, for all entities or for one of them.

    The manifest does not manage empty limits or a mode of None.
    """

    limits: Limits = field(default_factory=dict)
    mode: Switch | None = None


@dataclass(frozen=True, slots=True)
class EntityDecl:
    """An entity: its limits by resource, its place in the hierarchy, and its registration.

    If ``parent`` and ``cascade`` are both None, the manifest does not manage the place. If only one
    is set, ``parent`` defaults to none and ``cascade`` to False. An apply registers an entity that
    has a place or ``registered=True``. If ``registered`` is None, an apply registers the entity if
    it is the parent of another entity.
    """

    resources: Mapping[str, ResourceDecl] = field(default_factory=dict)
    parent: str | None = None
    cascade: bool | None = None
    registered: bool | None = None

    @property
    def has_place(self) -> bool:
        """Whether the manifest declares the entity's parent, or that the entity has no parent."""
        return self.parent is not None or self.cascade is not None


@dataclass(frozen=True, slots=True)
class LimitsManifest:
    """The managed limits of one namespace. An apply leaves all other limits alone.

    If ``namespace`` is None, the command or call that applies the manifest chooses the namespace.
    """

    namespace: str | None = None
    system: SystemDecl | None = None
    resources: Mapping[str, ResourceDecl] = field(default_factory=dict)
    entities: Mapping[str, EntityDecl] = field(default_factory=dict)

    @classmethod
    def from_yaml(cls, text: str, source: str = "manifest") -> LimitsManifest:
        """Read a manifest; raises a ManifestError with the line and column of every mistake."""
        from zae_limiter_ops.manifest.reading import read_yaml  # reading imports this module

        return read_yaml(text, source)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str = "manifest") -> LimitsManifest:
        """Read a manifest from a document; numbers may be text, as CloudFormation sends them."""
        from zae_limiter_ops.manifest.reading import read_document  # as above

        return read_document(data, source)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as a document, sorted by name."""
        document: dict[str, Any] = {}
        if self.namespace is not None:
            document["namespace"] = self.namespace
        if self.system is not None:
            document["system"] = _system(self.system)
        if self.resources:
            document["resources"] = _resources(self.resources)
        if self.entities:
            document["entities"] = {
                entity_id: _entity(entity) for entity_id, entity in sorted(self.entities.items())
            }
        return document


def _system(system: SystemDecl) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if system.on_unavailable is not None:
        document["on_unavailable"] = system.on_unavailable.value
    if system.limits:
        document["limits"] = _limits(system.limits)
    return document


def _terms_document(limit: Limit) -> dict[str, Any]:
    """Return a quota, a budget, a soft rate or soft slots as a document."""
    if limit.is_quota:
        fields = quota_fields(limit)
        # CloudFormation refuses a template with null.
        return fields if limit.hold_ttl is not None else {**fields, "hold_ttl": NEVER}
    hard = LimitDecl.of(replace(limit, soft=False)).to_dict()
    return {**hard, "soft": True}


def _limits(limits: Limits) -> dict[str, dict[str, Any]]:
    return {name: limit.to_dict() for name, limit in sorted(limits.items())}


def _resources(resources: Mapping[str, ResourceDecl]) -> dict[str, Any]:
    return {name: _resource(resource) for name, resource in sorted(resources.items())}


def _resource(resource: ResourceDecl) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if resource.mode is not None:
        document["mode"] = str(resource.mode)
    if resource.limits:
        document["limits"] = _limits(resource.limits)
    return document


def _entity(entity: EntityDecl) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if entity.parent is not None:
        document["parent"] = entity.parent
    if entity.cascade is not None:
        document["cascade"] = entity.cascade
    if entity.registered is not None:
        document["registered"] = entity.registered
    if entity.resources:
        document["resources"] = _resources(entity.resources)
    return document

"""The choice of the limits in force: all limits of the first configuration level that has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce, check_money
from zae_limiter.admission.rebase import has_limits, is_newer
from zae_limiter.admission.request import NO_NAMES, Charge
from zae_limiter.admission.switches import Switches, switched, switches_of
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import (
    ConfigSnapshot,
    ConfigSource,
    LevelConfig,
    OnUnavailable,
    SharedConfig,
)
from zae_limiter.models.limit import Limit, no_budget


class UnknownLimit(ValidationError):
    """A call names a limit that no bucket of its scope has; callers get a plain ValidationError."""

    def __init__(self, scope: Scope, name: str, amount: object, field: str) -> None:
        self.entity_ids = tuple([entity_id for entity_id, _ in scope.buckets])
        self.resource = scope.resource
        self.limit_name = name
        self.is_stored = all(each.source is not ConfigSource.OVERRIDE for _, each in scope.buckets)
        names = ", ".join(sorted(scope.limits.names))
        reason = f"is not a limit of {scope.resource!r}; its limits are {names}"
        super().__init__(f"{field}.{name}", amount, reason)

    def plain(self, removal: str = "") -> ValidationError:
        """Return the error for the caller, with a note on the removal of the limit."""
        reason = f"{self.reason}; {removal}" if removal else self.reason
        return ValidationError(self.field, self.value, reason)


class Scope:
    """The buckets of one resource: the entity's, and its parent's if the acquire cascades.

    ``buckets`` holds the entity id and the limits in force of each of them, the entity first.
    ``limits`` describes these limits together. ``switches`` are those of each bucket; None if no
    bucket has any.
    """

    __slots__ = ("buckets", "limits", "resource", "switches")

    def __init__(
        self,
        resource: str,
        buckets: tuple[tuple[str, InForce], ...],
        switches: tuple[Switches | None, ...] | None = None,
    ) -> None:
        self.resource = resource
        self.buckets = buckets
        self.switches = switches
        self.limits = _together(tuple([in_force for _, in_force in buckets]))

    def charges(
        self,
        amounts: Mapping[str, int],
        now_ms: int,
        field: str = "consume",
        takes_slot: bool = True,
    ) -> tuple[Charge, ...]:
        """Return the charge of each bucket: the amounts of the limits that the bucket has.

        An acquire (``takes_slot``) takes one slot of each limit on calls in flight, unless
        ``amounts`` names another number. Each charge has the mode of its bucket at ``now_ms``.
        """
        limits = self.limits
        for name, amount in amounts.items():
            if name not in limits.names:
                self._raise_unknown(amounts, field)
            if type(amount) is not int and name not in limits.budget_names:
                raise no_budget(f"{field}.{name}", amount)
        if limits.budget_names:
            check_money(amounts, limits.budget_names, field)
        charges: list[Charge] = []
        for entity_id, in_force in self.buckets:
            taken = in_force.amounts_milli(amounts)
            if takes_slot and in_force.slot_keys:
                in_force.add_slots(taken, amounts)
            charge = Charge(entity_id, self.resource, in_force, taken)
            if charges:  # the first is the child
                charge.through_child, charge.counts_elsewhere = limits.in_both, True
            charges.append(charge)
        if self.switches is not None:
            each = zip(charges, self.switches, strict=True)
            return tuple([switched(charge, switches, now_ms) for charge, switches in each])
        return tuple(charges)

    def _raise_unknown(self, amounts: Mapping[str, int], field: str) -> None:
        """Raise for a limit that no bucket of this scope has; its amount would have no effect."""
        unknown = min(amounts.keys() - self.limits.names)
        raise UnknownLimit(self, unknown, amounts[unknown], field)


def outdated_by(images: Sequence[BucketImage | None], charges: Sequence[Charge]) -> int | None:
    """Return the version of a newer configuration that a bucket has seen; None if none has."""
    versions = [
        image.config_version
        for image, charge in zip(images, charges, strict=True)
        if image is not None
        and is_newer(image, charge.in_force)
        and not has_limits(image, charge.in_force)
    ]
    return max(versions, default=None)


@dataclass(frozen=True, slots=True)
class CombinedLimits:
    """The limits of an entity, and those of its parent if it cascades, seen as one.

    ``in_both`` are the limits that both have. The parent counts their usage apart, since its child
    counts it as well.
    """

    names: frozenset[str]
    in_both: frozenset[str]
    budget_names: frozenset[str]
    has_slots: bool
    has_quotas: bool


@lru_cache(maxsize=1024)  # a namespace has fewer different pairs of limits
def _together(limits: tuple[InForce, ...]) -> CombinedLimits:
    """Combine limits once for all acquires that are charged under them."""
    return CombinedLimits(
        names=NO_NAMES.union(*[each.name_set for each in limits]),
        in_both=limits[0].token_names.intersection(*[each.token_names for each in limits[1:]]),
        budget_names=_budget_names(limits),
        has_slots=any(each.slot_keys for each in limits),
        has_quotas=any(each.quota_keys for each in limits),
    )


def _budget_names(limits: Sequence[InForce]) -> frozenset[str]:
    """Return the limits whose amounts are money, for the entity and for its parent."""
    names = NO_NAMES.union(*[each.budget_names for each in limits])
    for each in limits if names else ():
        for name in names & each.name_set - each.budget_names:
            raise ValidationError(
                f"limits.{name}",
                name,
                "is a budget of the entity or of its parent, but not of "
                "both; give one of them another name",
            )
    return names


class Resolved(NamedTuple):
    """The configuration of one entity on one resource.

    ``in_force`` is None if no configuration level has limits.
    """

    in_force: InForce | None
    on_unavailable: OnUnavailable | None
    parent_id: str | None
    cascade: bool
    version: int  # the configuration version of the namespace
    alone: Scope | None  # the scope of an acquire that does not cascade, prepared for many calls
    shared: SharedConfig  # the levels that apply to other entities on the resource as well
    switches: Switches | None = None


def resolve(
    snapshot: ConfigSnapshot, entity_id: str, resource: str, ttl_multiplier: int
) -> Resolved:
    """Apply the precedence: entity and resource, entity ``_default_``, resource, system."""
    entity, in_force = snapshot.entity, _winning(snapshot, ttl_multiplier)
    switches = switches_of(snapshot)
    own_switches = None if switches is None else (switches,)
    return Resolved(
        in_force,
        snapshot.system.on_unavailable if snapshot.system else None,
        entity.parent_id if entity is not None else None,
        entity is not None and entity.cascade,
        snapshot.version,
        None if in_force is None else Scope(resource, ((entity_id, in_force),), own_switches),
        SharedConfig(snapshot.version, snapshot.resource, snapshot.system),
        switches,
    )


def levels(snapshot: ConfigSnapshot) -> tuple[tuple[ConfigSource, LevelConfig | None], ...]:
    """Return all configuration levels, the strongest first."""
    return (
        (ConfigSource.ENTITY, snapshot.entity_resource),
        (ConfigSource.ENTITY_DEFAULT, snapshot.entity_default),
        (ConfigSource.RESOURCE, snapshot.resource),
        (ConfigSource.SYSTEM, snapshot.system),
    )


def override(limits: tuple[Limit, ...], resolved: Resolved, ttl_multiplier: int) -> InForce:
    """Return the limits that a call brings, in force in place of the configured ones."""
    return InForce(
        limits, ConfigSource.OVERRIDE, resolved.version, ttl_multiplier, resolved.in_force
    )


def _winning(snapshot: ConfigSnapshot, ttl_multiplier: int) -> InForce | None:
    for source, config in levels(snapshot):
        if config is not None and config.limits:
            return _in_force(config.limits, source, snapshot.version, ttl_multiplier)
    return None


@lru_cache(maxsize=1024)  # a namespace has fewer different sets of limits
def _in_force(
    limits: tuple[Limit, ...], source: ConfigSource, version: int, ttl_multiplier: int
) -> InForce:
    """Share one object between all entities that have the same limits from the same level."""
    return InForce(limits, source, version, ttl_multiplier)

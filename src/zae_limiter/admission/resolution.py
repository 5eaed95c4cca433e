"""The choice of the limits in force: all limits of the first configuration level that has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
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
from zae_limiter.models.limit import Limit


class Scope:
    """The buckets that one acquire charges: the entity's, and its parent's if it cascades.

    ``buckets`` holds the entity id and the limits in force of each of them, the entity first.
    ``switches`` are those of each bucket; None if no bucket has any.
    """

    __slots__ = (
        "_through_child",
        "buckets",
        "budget_names",
        "has_quotas",
        "has_slots",
        "names",
        "resource",
        "switches",
    )

    def __init__(
        self,
        resource: str,
        buckets: tuple[tuple[str, InForce], ...],
        switches: tuple[Switches | None, ...] | None = None,
    ) -> None:
        self.resource = resource
        self.buckets = buckets
        self.switches = switches
        _, own = buckets[0]
        names, shared, has_slots = own.name_set, own.token_names, bool(own.slot_keys)
        has_quotas = bool(own.quota_keys)
        for _, of_parent in buckets[1:]:
            names = names | of_parent.name_set
            shared = shared & of_parent.token_names
            has_slots = has_slots or bool(of_parent.slot_keys)
            has_quotas = has_quotas or bool(of_parent.quota_keys)
        self.names = names
        self.has_slots = has_slots
        self.has_quotas = has_quotas
        self.budget_names = _budget_names([in_force for _, in_force in buckets])
        self._through_child = shared  # the parent counts the limits that its child has as well

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
        for name, amount in amounts.items():
            if name not in self.names:
                self._raise_unknown(amounts, field)
            if type(amount) is not int and name not in self.budget_names:
                raise ValidationError(
                    f"{field}.{name}", amount, "must be a whole number: the limit is no budget"
                )
        charges: list[Charge] = []
        for entity_id, in_force in self.buckets:
            taken = in_force.amounts_milli(amounts)
            if takes_slot and in_force.slot_keys:
                in_force.add_slots(taken, amounts)
            through_child = self._through_child if charges else NO_NAMES  # the first is the child
            charges.append(Charge(entity_id, self.resource, in_force, taken, through_child))
        if self.switches is not None:
            each = zip(charges, self.switches, strict=True)
            return tuple([switched(charge, switches, now_ms) for charge, switches in each])
        return tuple(charges)

    def is_stale(self, images: Sequence[BucketImage | None]) -> bool:
        """Tell whether a bucket has seen a newer configuration and holds other limits."""
        return any(
            image is not None and is_newer(image, in_force) and not has_limits(image, in_force)
            for image, (_, in_force) in zip(images, self.buckets, strict=True)
        )

    def _raise_unknown(self, amounts: Mapping[str, int], field: str) -> None:
        """Raise for a limit that no bucket of this scope has; its amount would have no effect."""
        unknown = min(amounts.keys() - self.names)
        raise ValidationError(
            f"{field}.{unknown}",
            amounts[unknown],
            f"is not a limit of {self.resource!r}; its limits are {', '.join(sorted(self.names))}",
        )


NO_BUDGETS: frozenset[str] = frozenset()


def _budget_names(limits: Sequence[InForce]) -> frozenset[str]:
    """Return the limits whose amounts are money, for the entity and for its parent."""
    names = NO_BUDGETS.union(*[each.budget_names for each in limits])
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

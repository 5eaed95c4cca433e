"""Which limits are in force: those of the first configuration level that has any, as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce
from zae_limiter.admission.rebase import has_limits, is_newer
from zae_limiter.admission.request import NO_NAMES, Charge
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
    """The buckets that one acquire concerns: the entity's, and its parent's if it cascades."""

    __slots__ = ("_through_child", "buckets", "has_slots", "names", "resource")

    def __init__(self, resource: str, buckets: tuple[tuple[str, InForce], ...]) -> None:
        self.resource = resource
        self.buckets = buckets
        self.names = names = buckets[0][1].name_set
        self._through_child = tokens = buckets[0][1].token_names
        self.has_slots = bool(buckets[0][1].slot_keys)
        if len(buckets) > 1:
            parent = buckets[1][1]
            self.has_slots = self.has_slots or bool(parent.slot_keys)
            if parent.name_set is not names:  # they often have the same limits
                self.names = names | parent.name_set
                self._through_child = tokens & parent.token_names

    def charges(
        self, amounts: Mapping[str, int], field: str = "consume", takes_slot: bool = True
    ) -> tuple[Charge, ...]:
        """Return the charge of each bucket: the amounts of the limits that it has.

        An acquire (``takes_slot``) takes a slot of each limit on calls in flight, unless
        ``amounts`` says otherwise.
        """
        for name in amounts:
            if name not in self.names:
                self._raise_unknown(amounts, field)
        resource = self.resource
        entity_id, in_force = self.buckets[0]
        taken = in_force.amounts_milli(amounts)
        takes_slot = takes_slot and self.has_slots
        if takes_slot:
            in_force.add_slots(taken, amounts)
        charge = Charge(
            entity_id=entity_id,
            resource=resource,
            in_force=in_force,
            amounts_milli=taken,
            through_child=NO_NAMES,
        )
        if len(self.buckets) == 1:
            return (charge,)
        parent_id, above = self.buckets[1]
        through_child = self._through_child
        taken = above.amounts_milli(amounts)
        if takes_slot:
            above.add_slots(taken, amounts)
        return charge, Charge(
            entity_id=parent_id,
            resource=resource,
            in_force=above,
            amounts_milli=taken,
            through_child=through_child,
        )

    def is_stale(self, images: Sequence[BucketImage | None]) -> bool:
        """Whether one of the buckets has seen newer configuration and holds other limits."""
        return any(
            image is not None and is_newer(image, in_force) and not has_limits(image, in_force)
            for image, (_, in_force) in zip(images, self.buckets, strict=True)
        )

    def _raise_unknown(self, amounts: Mapping[str, int], field: str) -> None:
        """Raise for a limit that no bucket of this scope has: it would be ignored silently."""
        unknown = min(amounts.keys() - self.names)
        raise ValidationError(
            f"{field}.{unknown}",
            amounts[unknown],
            f"is not a limit of {self.resource!r}; its limits are {', '.join(sorted(self.names))}",
        )


class Resolved(NamedTuple):
    """The configuration of one entity on one resource.

    ``in_force`` is None where no level has limits.
    """

    in_force: InForce | None
    on_unavailable: OnUnavailable | None
    parent_id: str | None
    cascade: bool
    version: int  # the configuration version of the namespace
    alone: Scope | None  # the stored limits without a parent, prepared for many calls
    shared: SharedConfig  # the levels that hold for other entities on the resource, too


def resolve(
    snapshot: ConfigSnapshot, entity_id: str, resource: str, ttl_multiplier: int
) -> Resolved:
    """Apply the precedence: entity and resource, entity ``_default_``, resource, system."""
    entity, in_force = snapshot.entity, _winning(snapshot, ttl_multiplier)
    return Resolved(
        in_force,
        snapshot.system.on_unavailable if snapshot.system else None,
        entity.parent_id if entity is not None else None,
        entity is not None and entity.cascade,
        snapshot.version,
        None if in_force is None else Scope(resource, ((entity_id, in_force),)),
        SharedConfig(snapshot.version, snapshot.resource, snapshot.system),
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
    """Return the limits that a call brings, stored beside configured ones that differ."""
    return InForce(
        limits, ConfigSource.OVERRIDE, resolved.version, ttl_multiplier, resolved.in_force
    )


def _winning(snapshot: ConfigSnapshot, ttl_multiplier: int) -> InForce | None:
    for source, config in levels(snapshot):
        if config is not None and config.limits:
            return _in_force(config.limits, source, snapshot.version, ttl_multiplier)
    return None


@lru_cache(maxsize=1024)  # more than a namespace has different limits
def _in_force(
    limits: tuple[Limit, ...], source: ConfigSource, version: int, ttl_multiplier: int
) -> InForce:
    """Share one object between all entities that have the same limits from the same level."""
    return InForce(limits, source, version, ttl_multiplier)

"""Which limits apply, and where they come from: the first level that has limits wins whole."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.admission.in_force import InForce
from zae_limiter.models.config import ConfigSnapshot, ConfigSource, LevelConfig, OnUnavailable
from zae_limiter.models.limit import Limit


class Resolved(NamedTuple):
    """The configuration of one entity on one resource.

    ``in_force`` is None where no level has limits.
    """

    in_force: InForce | None
    on_unavailable: OnUnavailable | None
    parent_id: str | None
    cascade: bool
    version: int  # the namespace's configuration count


def resolve(snapshot: ConfigSnapshot, ttl_multiplier: int) -> Resolved:
    """Apply the precedence: entity+resource, entity ``_default_``, resource, system."""
    entity = snapshot.entity
    return Resolved(
        _winning(snapshot, ttl_multiplier),
        snapshot.system.on_unavailable if snapshot.system else None,
        entity.parent_id if entity is not None else None,
        entity is not None and entity.cascade,
        snapshot.version,
    )


def levels(snapshot: ConfigSnapshot) -> tuple[tuple[ConfigSource, LevelConfig | None], ...]:
    """All levels, the strongest first."""
    return (
        (ConfigSource.ENTITY, snapshot.entity_resource),
        (ConfigSource.ENTITY_DEFAULT, snapshot.entity_default),
        (ConfigSource.RESOURCE, snapshot.resource),
        (ConfigSource.SYSTEM, snapshot.system),
    )


def override(limits: tuple[Limit, ...], resolved: Resolved, ttl_multiplier: int) -> InForce:
    """Limits that a call brings along, beside what is configured."""
    return InForce(
        limits, ConfigSource.OVERRIDE, resolved.version, ttl_multiplier, resolved.in_force
    )


def _winning(snapshot: ConfigSnapshot, ttl_multiplier: int) -> InForce | None:
    for source, config in levels(snapshot):
        if config is not None and config.limits:
            return InForce(config.limits, source, snapshot.version, ttl_multiplier)
    return None

"""Stored configuration: limits of a level, where limits come from, what to do in an outage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit


class OnUnavailable(StrEnum):
    """What an acquire does when the store does not answer."""

    ALLOW = "allow"
    BLOCK = "block"

    @classmethod
    def parse(cls, value: object, field: str = "on_unavailable") -> OnUnavailable:
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            raise ValidationError(field, value, "must be 'allow' or 'block'") from None


class ConfigSource(StrEnum):
    """The level that limits come from."""

    ENTITY = "entity"
    ENTITY_DEFAULT = "entity_default"
    RESOURCE = "resource"
    SYSTEM = "system"
    OVERRIDE = "override"

    @property
    def is_entity_level(self) -> bool:
        return self in (ConfigSource.ENTITY, ConfigSource.ENTITY_DEFAULT)


@dataclass(frozen=True, slots=True)
class LevelConfig:
    """What is stored at one level."""

    limits: tuple[Limit, ...]
    on_unavailable: OnUnavailable | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the audit log shows it."""
        described: dict[str, Any] = {"limits": [limit.to_dict() for limit in self.limits]}
        if self.on_unavailable is not None:
            described["on_unavailable"] = self.on_unavailable.value
        return described


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """Everything that decides an (entity, resource), read at one moment.

    ``version`` counts every change of configuration in the namespace.
    """

    version: int
    entity: Entity | None = None
    entity_resource: LevelConfig | None = None
    entity_default: LevelConfig | None = None
    resource: LevelConfig | None = None
    system: LevelConfig | None = None


class SharedConfig(NamedTuple):
    """What entities on one resource have in common, as read a moment ago."""

    version: int
    resource: LevelConfig | None
    system: LevelConfig | None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of the configuration cache."""

    hits: int
    misses: int
    size: int
    ttl_seconds: float


@dataclass(frozen=True, slots=True)
class Namespace:
    """An isolated part of a store."""

    namespace_id: str
    name: str
    status: str
    created_at: str
    deleted_at: str | None = None

"""Stored configuration: the configuration levels, their limits, and the outage policy."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zae_limiter.exceptions import LimitsChangedError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit
    from zae_limiter.models.switches import Switch


class OnUnavailable(StrEnum):
    """The outage policy: whether an acquire is allowed if the store does not answer."""

    ALLOW = "allow"
    BLOCK = "block"

    @classmethod
    def parse(cls, value: object, field: str = "on_unavailable") -> OnUnavailable:
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            raise ValidationError(field, value, "must be 'allow' or 'block'") from None


OutagePolicy = OnUnavailable | Literal["allow", "block"]  # a typo is a type error
Mode = Literal["enforce", "shadow"]  # of a call: in shadow mode nothing is rejected
OnError = Literal["refund", "keep"]  # whether charges are given back if the block raises


class ConfigSource(StrEnum):
    """The configuration level that limits come from."""

    ENTITY = "entity"
    ENTITY_DEFAULT = "entity_default"
    RESOURCE = "resource"
    SYSTEM = "system"
    OVERRIDE = "override"

    @property
    def is_entity_level(self) -> bool:
        return self in (ConfigSource.ENTITY, ConfigSource.ENTITY_DEFAULT)


class SupersededLimit(NamedTuple):
    """A limit in force that no longer applies after a change, and the level that has it.

    ``resource`` is None for all resources that are not named.
    """

    limit: Limit
    source: ConfigSource
    resource: str | None


class ConfigLevel(NamedTuple):
    """A configuration level: an entity on a resource, a resource, or the whole namespace.

    The default of an entity has the resource ``_default_``. The empty string stands for none:
    resource defaults have no entity, and system defaults have neither entity nor resource.
    """

    entity_id: str = ""
    resource: str = ""

    @property
    def is_system(self) -> bool:
        return not self.entity_id and not self.resource


class Keep(Enum):
    """The type of ``KEEP``, which leaves a setting as it is stored."""

    KEEP = "keep"

    def __repr__(self) -> str:
        return "KEEP"


KEEP = Keep.KEEP


def check_replaced(stored: LevelConfig | None, replaces: Iterable[Limit] | None) -> None:
    """Raise LimitsChangedError if other limits are stored than those that a change replaces.

    None replaces whatever is stored.
    """
    present = () if stored is None else stored.limits
    if replaces is not None and set(replaces) != set(present):
        raise LimitsChangedError(tuple(map(str, present)))


class LevelConfig(NamedTuple):
    """The content of one configuration level.

    With ``keeps_policy``, a store that writes the level keeps the stored outage policy. With
    ``replaces``, the level is written only if exactly these limits are stored, in any order. A
    write of limits keeps the ``switch``, which is the mode of a resource or of an entity.
    """

    limits: tuple[Limit, ...]
    on_unavailable: OnUnavailable | None = None
    keeps_policy: bool = False
    replaces: tuple[Limit, ...] | None = None
    switch: Switch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is configured at the level."""
        return not self.limits and self.on_unavailable is None and self.switch is None

    def with_kept(self, stored: LevelConfig | None) -> LevelConfig:
        """Return the new content of a level with the parts of ``stored`` that it keeps."""
        kept = stored or LevelConfig(())
        policy = kept.on_unavailable if self.keeps_policy else self.on_unavailable
        return LevelConfig(self.limits, policy, switch=kept.switch)

    def without_limits(self) -> LevelConfig | None:
        """Return the content after limits and policy were deleted; None if nothing remains."""
        return None if self.switch is None else LevelConfig((), switch=self.switch)

    def over(self, stored: LevelConfig | None, *, if_missing: bool = False) -> LevelConfig:
        """Return the content of a level after this was written over the ``stored`` content.

        With ``if_missing``, stored limits and a stored outage policy stay as they are. If other
        limits are stored than those that this ``replaces``, LimitsChangedError is raised.
        """
        check_replaced(stored, self.replaces)
        policy = None if stored is None else stored.on_unavailable
        if not if_missing or stored is None:
            return self.with_kept(stored).in_order_of(stored)
        if stored.limits:
            return stored
        kept = self.on_unavailable if policy is None else policy
        return LevelConfig(self.limits, kept, switch=stored.switch)

    def in_order_of(self, stored: LevelConfig | None) -> LevelConfig:
        """Return the content with its limits in the ``stored`` order if only the order differs.

        So writing the same limits in another order changes nothing.
        """
        if stored is not None and set(stored.limits) == set(self.limits):
            return self._replace(limits=stored.limits)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the content as the audit log shows it."""
        described: dict[str, Any] = {"limits": [limit.to_dict() for limit in self.limits]}
        if self.on_unavailable is not None:
            described["on_unavailable"] = self.on_unavailable.value
        if self.switch is not None:
            described["mode"] = self.switch.to_dict()
        return described


def with_switch(stored: LevelConfig | None, switch: Switch | None) -> LevelConfig | None:
    """Return the content of a level with another switch; None if nothing remains."""
    after = (stored or LevelConfig(()))._replace(switch=switch)
    return None if after.is_empty else after


class StoredLevel(NamedTuple):
    """The content of a level after a write, and whether the write has changed it."""

    config: LevelConfig
    changed: bool


class ConfigSnapshot(NamedTuple):
    """All configuration from which the limits of an entity on a resource follow.

    All of it was read at one moment. ``version`` counts every change of configuration in the
    namespace.
    """

    version: int
    entity: Entity | None = None
    entity_resource: LevelConfig | None = None
    entity_default: LevelConfig | None = None
    resource: LevelConfig | None = None
    system: LevelConfig | None = None


class SharedConfig(NamedTuple):
    """The configuration that all entities on one resource share, as read a moment ago."""

    version: int
    resource: LevelConfig | None
    system: LevelConfig | None

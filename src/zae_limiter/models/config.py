"""Stored configuration: the configuration levels, their limits, and the outage policy."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zae_limiter.exceptions import ValidationError

if TYPE_CHECKING:
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


class LevelConfig(NamedTuple):
    """The content of one configuration level."""

    limits: tuple[Limit, ...]
    on_unavailable: OnUnavailable | None = None
    switch: Switch | None = None
    """The mode of a resource or of an entity."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is configured at the level."""
        return not self.limits and self.on_unavailable is None and self.switch is None

    def to_dict(self) -> dict[str, Any]:
        """Return the content as the audit log shows it."""
        described: dict[str, Any] = {"limits": [limit.to_dict() for limit in self.limits]}
        if self.on_unavailable is not None:
            described["on_unavailable"] = self.on_unavailable.value
        if self.switch is not None:
            described["mode"] = self.switch.to_dict()
        return described


class LevelChange(NamedTuple):
    """A change of the limits, the outage policy or the switch of one configuration level.

    KEEP leaves a part as it is. A level of which nothing remains is deleted.
    """

    level: ConfigLevel
    limits: tuple[Limit, ...] | Keep
    on_unavailable: OnUnavailable | Keep | None = None
    switch: Switch | Keep | None = KEEP
    if_missing: bool = False
    """Stored limits and a stored outage policy stay as they are."""
    replaces: tuple[Limit, ...] | None = None
    """Exactly these limits must be stored, in any order; None replaces whatever is stored."""

    @property
    def keeps_limits(self) -> bool:
        """Whether limits that are stored may stay, so that they must be readable."""
        return isinstance(self.limits, Keep) or self.if_missing

    @property
    def deletes_limits(self) -> bool:
        return self.limits == ()

    @property
    def may_delete(self) -> bool:
        """Whether nothing may remain of the level."""
        return self.deletes_limits or isinstance(self.limits, Keep)


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

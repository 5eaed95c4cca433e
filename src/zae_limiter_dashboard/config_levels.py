"""The configuration levels that the page shows and changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.models.audit import SYSTEM_SUBJECT, resource_subject
from zae_limiter.naming import DEFAULT_RESOURCE, check_entity_id, check_resource

if TYPE_CHECKING:
    from zae_limiter import SyncRepository
    from zae_limiter.models.config import ConfigSource
    from zae_limiter.models.limit import Limit
    from zae_limiter_dashboard.previews import Fields


class Level(NamedTuple):
    """A configuration level; ``entity_id`` and ``resource`` are empty where they do not apply."""

    entity_id: str
    resource: str

    @classmethod
    def of(cls, fields: Fields) -> Level:
        entity_id, resource = fields.get("entity", ""), fields.get("resource", "")
        if entity_id:
            check_entity_id(entity_id)
        if resource and not (entity_id and resource == DEFAULT_RESOURCE):
            check_resource(resource)
        return cls(entity_id, resource or (DEFAULT_RESOURCE if entity_id else ""))

    @property
    def title(self) -> str:
        if not self.entity_id:
            return f"defaults of {self.resource}" if self.resource else "system defaults"
        where = "any resource" if self.resource == DEFAULT_RESOURCE else self.resource
        return f"limits of {self.entity_id} on {where}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command that sets the limits of the level."""
        return self._words("set")

    @property
    def delete_words(self) -> tuple[str, ...]:
        """The words of the command that deletes the limits of the level."""
        return self._words("delete")

    def _words(self, verb: str) -> tuple[str, ...]:
        if self.entity_id:
            return "entity", f"{verb}-limits", self.entity_id
        if self.resource:
            return "resource", f"{verb}-defaults", self.resource
        return "system", f"{verb}-defaults"

    @property
    def resource_option(self) -> tuple[str, ...]:
        """The option that names the resource of an entity's limits."""
        is_default = not self.entity_id or self.resource == DEFAULT_RESOURCE
        return () if is_default else ("--resource", self.resource)

    @property
    def subject(self) -> str:
        """The subject under which the audit log has the changes of the level."""
        if self.entity_id:
            return self.entity_id
        return resource_subject(self.resource) if self.resource else SYSTEM_SUBJECT

    def stored(self, repository: SyncRepository) -> list[Limit]:
        """Return the limits that the level has."""
        if self.entity_id:
            return repository.get_limits(self.entity_id, self.resource)
        if self.resource:
            return repository.get_resource_defaults(self.resource)
        return repository.get_system_defaults()[0]

    def replace(
        self, repository: SyncRepository, limits: list[Limit], before: list[Limit], principal: str
    ) -> bool:
        """Store the limits; raise LimitsChangedError if others than ``before`` are stored."""
        if self.entity_id:
            return repository.set_limits(
                self.entity_id, limits, self.resource, principal, replaces=before
            )
        if self.resource:
            return repository.set_resource_defaults(
                self.resource, limits, principal, replaces=before
            )
        return repository.set_system_defaults(limits, principal=principal, replaces=before)

    def delete(self, repository: SyncRepository, before: list[Limit], principal: str) -> None:
        """Delete the limits; raise LimitsChangedError if others than ``before`` are stored."""
        if self.entity_id:
            repository.delete_limits(self.entity_id, self.resource, principal, replaces=before)
        elif self.resource:
            repository.delete_resource_defaults(self.resource, principal, replaces=before)
        else:
            repository.delete_system_defaults(principal, replaces=before)

    def in_force(self, repository: SyncRepository) -> tuple[list[Limit], ConfigSource | None]:
        """Return the limits in force at the level, and the level that has them."""
        return repository.get_limits_in_force(self.entity_id or None, self.resource or None)

    def next_levels(self) -> tuple[Level, ...]:
        """Return the levels whose limits apply without those of this level, the first one first."""
        if not self.entity_id:
            return (Level("", ""),) if self.resource else ()
        if self.resource == DEFAULT_RESOURCE:
            return ()  # those of each resource, which are different
        return Level(self.entity_id, DEFAULT_RESOURCE), Level("", self.resource), Level("", "")

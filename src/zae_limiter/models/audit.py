"""The audit log: its events, their subjects, and the reported changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.naming import new_event_id, process_author

if TYPE_CHECKING:
    from zae_limiter.models.config import ConfigLevel

SYSTEM_SUBJECT = "$SYSTEM"


def resource_subject(resource: str) -> str:
    """Return the ``entity_id`` under which changes of a resource's defaults are logged."""
    return f"$RESOURCE:{resource}"


def namespace_subject(namespace: str) -> str:
    """Return the ``entity_id`` under which the life of a namespace is logged."""
    return f"$NAMESPACE:{namespace}"


def config_subject(level: ConfigLevel) -> str:
    """Return the ``entity_id`` under which changes of a configuration level are logged."""
    if level.entity_id:
        return level.entity_id
    return resource_subject(level.resource) if level.resource else SYSTEM_SUBJECT


class AuditAction(StrEnum):
    """The kinds of changes."""

    ENTITY_CREATED = "entity_created"
    ENTITY_DELETED = "entity_deleted"
    ENTITY_UNREGISTERED = "entity_unregistered"  # the limits and buckets of the entity stay
    PARENT_SET = "parent_set"
    LIMITS_SET = "limits_set"
    LIMITS_DELETED = "limits_deleted"
    MODE_SET = "mode_set"
    BUCKET_RESET = "bucket_reset"
    BUCKET_TOPPED_UP = "bucket_topped_up"
    BUCKET_PAUSED = "bucket_paused"
    BUCKET_RESUMED = "bucket_resumed"
    PRICES_LOADED = "prices_loaded"  # a process has begun to charge money by a price file
    NAMESPACE_REGISTERED = "namespace_registered"
    NAMESPACE_DELETED = "namespace_deleted"
    NAMESPACE_RECOVERED = "namespace_recovered"
    NAMESPACE_PURGED = "namespace_purged"


def pause_event(paused_until_ms: int | None) -> tuple[AuditAction, dict[str, Any]]:
    """Return action and details of the event of a pause; with None the pause was lifted."""
    if paused_until_ms is None:
        return AuditAction.BUCKET_RESUMED, {}
    return AuditAction.BUCKET_PAUSED, {"until": iso_from_ms(paused_until_ms)}


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event of the audit log. Event ids sort by time."""

    event_id: str
    timestamp: str
    action: str
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class AuditedChange(NamedTuple):
    """The audit data of a change that is about to be made: its subject, moment and author.

    ``event_id`` is chosen before the first attempt, so that every retry logs the same event.
    ``subject`` is an entity's id, or one of the ``$`` subjects above.
    """

    subject: str
    now_ms: int
    event_id: str
    principal: str | None = None
    resource: str | None = None

    @classmethod
    def by(
        cls, principal: str | None, subject: str, now_ms: int, resource: str | None = None
    ) -> AuditedChange:
        """Return the audit data with a new event id. The default principal names the process."""
        is_named = principal is not None and principal.strip() != ""
        author = principal if is_named else process_author()
        return cls(subject, now_ms, new_event_id(now_ms), author, resource)

    @classmethod
    def of_level(cls, principal: str | None, level: ConfigLevel, now_ms: int) -> AuditedChange:
        """Return the audit data of a change of a configuration level."""
        return cls.by(principal, config_subject(level), now_ms, level.resource or None)

    def event(self, action: AuditAction, details: dict[str, Any] | None = None) -> AuditEvent:
        return AuditEvent(
            event_id=self.event_id,
            timestamp=iso_from_ms(self.now_ms),
            action=action.value,
            entity_id=self.subject,
            principal=self.principal,
            resource=self.resource,
            details=details or {},
        )

"""Who changed what, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SYSTEM_SUBJECT = "$SYSTEM"


def resource_subject(resource: str) -> str:
    """The ``entity_id`` under which changes of a resource's defaults are logged."""
    return f"$RESOURCE:{resource}"


def namespace_subject(namespace: str) -> str:
    """The ``entity_id`` under which the life of a namespace is logged."""
    return f"$NAMESPACE:{namespace}"


class AuditAction(StrEnum):
    """What happened."""

    ENTITY_CREATED = "entity_created"
    ENTITY_DELETED = "entity_deleted"
    LIMITS_SET = "limits_set"
    LIMITS_DELETED = "limits_deleted"
    BUCKET_RESET = "bucket_reset"
    BUCKET_TOPPED_UP = "bucket_topped_up"
    NAMESPACE_REGISTERED = "namespace_registered"
    NAMESPACE_DELETED = "namespace_deleted"
    NAMESPACE_RECOVERED = "namespace_recovered"
    NAMESPACE_PURGED = "namespace_purged"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One change. ``event_id`` sorts by time."""

    event_id: str
    timestamp: str
    action: str
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

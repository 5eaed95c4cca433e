"""The audit log: written in the transaction of the change that it reports."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter.embedded.tables import Tables
from zae_limiter.identifiers import new_event_id
from zae_limiter.models.audit import AuditAction, AuditEvent
from zae_limiter.models.timestamps import iso_from_ms


class Change(NamedTuple):
    """Whose state changes, when, and who did it."""

    entity_id: str
    now_ms: int
    principal: str | None = None
    resource: str | None = None

    @property
    def bucket_resource(self) -> str:
        """The resource of a change that always has one."""
        return self.resource or ""


def record(
    tables: Tables,
    namespace_id: str,
    change: Change,
    action: AuditAction,
    details: dict[str, Any] | None = None,
) -> None:
    """Append one event."""
    event = AuditEvent(
        event_id=new_event_id(change.now_ms),
        timestamp=iso_from_ms(change.now_ms),
        action=action.value,
        entity_id=change.entity_id,
        principal=change.principal,
        resource=change.resource,
        details=details or {},
    )
    tables.add_audit(namespace_id, event)


def events(
    tables: Tables, namespace_id: str, entity_id: str, before_event_id: str | None, limit: int
) -> list[AuditEvent]:
    """Newest first."""
    return tables.audit(namespace_id, entity_id, before_event_id, limit)

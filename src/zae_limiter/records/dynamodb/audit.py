"""Audit events: ``{ns}/AUDIT#{subject}``, ``#AUDIT#{event_id}``; expire with their ``ttl``."""

from __future__ import annotations

from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter.identifiers import new_event_id
from zae_limiter.models.audit import AuditAction, AuditEvent
from zae_limiter.models.timestamps import iso_from_ms, ms_from_iso
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.actions import Action
from zae_limiter.records.dynamodb.attributes import (
    Item,
    damaged,
    document,
    n,
    optional_text,
    parsed,
    s,
    text,
)

DAY_S = 86_400


class Change(NamedTuple):
    """Whose state changes, when, who did it, and the id under which it is logged."""

    subject: str
    now_ms: int
    event_id: str
    principal: str | None = None
    resource: str | None = None

    @classmethod
    def by(
        cls, principal: str | None, subject: str, now_ms: int, resource: str | None = None
    ) -> Change:
        return cls(subject, now_ms, new_event_id(now_ms), principal, resource)

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


def log(namespace_id: str, event: AuditEvent, retention_days: int) -> Action:
    """The part of a transaction that logs it."""
    return {"Put": {"Item": encode(namespace_id, event, retention_days)}}


def encode(namespace_id: str, event: AuditEvent, retention_days: int) -> Item:
    expires_s = ms_from_iso(event.timestamp) // 1000 + retention_days * DAY_S
    item = {
        **keys.audit_event(namespace_id, event.entity_id, event.event_id).item,
        "GSI4PK": s(schema.gsi4_pk_namespace(namespace_id)),
        "event_id": s(event.event_id),
        "timestamp": s(event.timestamp),
        "action": s(event.action),
        "entity_id": s(event.entity_id),
        "details": document(event.details),
        "ttl": n(expires_s),
    }
    for name, value in (("principal", event.principal), ("resource", event.resource)):
        if value is not None:
            item[name] = s(value)
    return item


def decode(item: Item) -> AuditEvent:
    try:
        return AuditEvent(
            event_id=text(item["event_id"]),
            timestamp=text(item["timestamp"]),
            action=text(item["action"]),
            entity_id=text(item["entity_id"]),
            principal=optional_text(item, "principal"),
            resource=optional_text(item, "resource"),
            details=parsed(item["details"]) if "details" in item else {},
        )
    except (KeyError, ValueError) as error:
        raise damaged("audit event", item, error) from error

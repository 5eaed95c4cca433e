"""Audit events: ``{ns}/AUDIT#{subject}``, ``#AUDIT#{event_id}``; expire with their ``ttl``."""

from __future__ import annotations

from zae_limiter.items.stored import keys
from zae_limiter.items.stored.attributes import (
    Item,
    damaged,
    document,
    n,
    optional_text,
    parsed,
    s,
    text,
)
from zae_limiter.items.stored.update import ItemPut
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.timestamps import ms_from_iso

DAY_S = 86_400


def log(namespace_id: str, event: AuditEvent, retention_days: int) -> ItemPut:
    """Return the write of an event, to be made together with the change that it reports."""
    return ItemPut(encode(namespace_id, event, retention_days))


def encode(namespace_id: str, event: AuditEvent, retention_days: int) -> Item:
    """Return the item of an event."""
    expires_s = ms_from_iso(event.timestamp) // 1000 + retention_days * DAY_S
    key = keys.audit_event(namespace_id, event.entity_id, event.event_id)
    return {
        **key.attributes,
        **keys.namespace_index(namespace_id, key, event.entity_id),
        "timestamp": s(event.timestamp),
        "ttl": n(expires_s),
        **({} if event.principal is None else {"principal": s(event.principal)}),
        "event_id": s(event.event_id),
        "action": s(event.action),
        "entity_id": s(event.entity_id),
        "details": document(event.details),
        **({} if event.resource is None else {"resource": s(event.resource)}),
    }


def decode(item: Item) -> AuditEvent:
    """Return the event of an item."""
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
    except (KeyError, TypeError, ValueError) as error:
        raise damaged("audit event", item, error) from error

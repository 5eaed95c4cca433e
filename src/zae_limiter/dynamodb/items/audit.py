"""Audit events: ``{ns}/AUDIT#{subject}``, ``#AUDIT#{event_id}``; expire with their ``ttl``."""

from __future__ import annotations

from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import (
    Item,
    damaged,
    document,
    n,
    optional_text,
    parsed,
    s,
    text,
)
from zae_limiter.dynamodb.items.transact_items import Action
from zae_limiter.models.audit import AuditEvent
from zae_limiter.models.timestamps import ms_from_iso

DAY_S = 86_400


def log(namespace_id: str, event: AuditEvent, retention_days: int) -> Action:
    """Return the action of a transaction that writes its audit event."""
    return {"Put": {"Item": encode(namespace_id, event, retention_days)}}


def encode(namespace_id: str, event: AuditEvent, retention_days: int) -> Item:
    expires_s = ms_from_iso(event.timestamp) // 1000 + retention_days * DAY_S
    key = keys.audit_event(namespace_id, event.entity_id, event.event_id)
    item = {
        **key.attributes,
        **keys.namespace_index(namespace_id, key, event.entity_id),
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

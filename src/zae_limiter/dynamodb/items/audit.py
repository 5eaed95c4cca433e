"""Audit events: ``{ns}/AUDIT#{subject}``, ``#AUDIT#{event_id}``; expire with their ``ttl``.

Events of a batch of changes are bundled: those whose subjects have the same bundle share an item
under the subject ``$BUNDLE:{number}``, with the id of the newest of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zae_limiter.dynamodb.items import keys
from zae_limiter.dynamodb.items.attributes import (
    Item,
    damaged,
    document,
    documents,
    n,
    optional_text,
    parsed,
    parsed_list,
    s,
    text,
)
from zae_limiter.dynamodb.items.transact_items import Action
from zae_limiter.models.audit import BUNDLED_EVENTS, AuditEvent, bundle_of
from zae_limiter.models.timestamps import ms_from_iso

DAY_S = 86_400
BUNDLE = "$BUNDLE:"  # no id of an entity begins with $
EVENTS = "events"


def log(namespace_id: str, event: AuditEvent, retention_days: int) -> Action:
    """Return the action of a transaction that writes its audit event."""
    return {"Put": {"Item": encode(namespace_id, event, retention_days)}}


def log_all(namespace_id: str, events: Iterable[AuditEvent], retention_days: int) -> list[Action]:
    """Return the actions of a transaction that write the events of a batch, bundled."""
    bundles: dict[int, list[AuditEvent]] = {}
    for event in sorted(events, key=lambda event: event.event_id):
        bundles.setdefault(bundle_of(event.entity_id), []).append(event)
    actions = []
    for bundled in bundles.values():
        for start in range(0, len(bundled), BUNDLED_EVENTS):
            together = bundled[start : start + BUNDLED_EVENTS]
            if len(together) == 1:
                actions.append(log(namespace_id, together[0], retention_days))
            else:
                actions.append({"Put": {"Item": _bundle(namespace_id, together, retention_days)}})
    return actions


def bundle_subject(subject: str) -> str:
    """Return the subject under which bundled events about this subject are stored."""
    return f"{BUNDLE}{bundle_of(subject):02x}"


def encode(namespace_id: str, event: AuditEvent, retention_days: int) -> Item:
    return {
        **_frame(namespace_id, event.entity_id, event, retention_days),
        "event_id": s(event.event_id),
        "action": s(event.action),
        "entity_id": s(event.entity_id),
        "details": document(event.details),
        **({} if event.resource is None else {"resource": s(event.resource)}),
    }


def _bundle(namespace_id: str, events: list[AuditEvent], retention_days: int) -> Item:
    """Return the item of events of one batch, which have time and principal in common."""
    newest = events[-1]
    return {
        **_frame(namespace_id, bundle_subject(newest.entity_id), newest, retention_days),
        EVENTS: documents([_own_fields(event) for event in events]),
    }


def _frame(namespace_id: str, subject: str, event: AuditEvent, retention_days: int) -> Item:
    """Return keys, time, principal and TTL of an item."""
    expires_s = ms_from_iso(event.timestamp) // 1000 + retention_days * DAY_S
    key = keys.audit_event(namespace_id, subject, event.event_id)
    return {
        **key.attributes,
        **keys.namespace_index(namespace_id, key, subject),
        "timestamp": s(event.timestamp),
        "ttl": n(expires_s),
        **({} if event.principal is None else {"principal": s(event.principal)}),
    }


def _own_fields(event: AuditEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "action": event.action,
        "entity_id": event.entity_id,
        "resource": event.resource,
        "details": event.details,
    }


def decode(item: Item) -> list[AuditEvent]:
    """Return the events of an item, the oldest first: one, or those of a bundle."""
    try:
        timestamp, principal = text(item["timestamp"]), optional_text(item, "principal")
        return [
            AuditEvent(
                event_id=fields["event_id"],
                timestamp=timestamp,
                action=fields["action"],
                entity_id=fields["entity_id"],
                principal=principal,
                resource=fields["resource"],
                details=fields["details"],
            )
            for fields in (parsed_list(item[EVENTS]) if EVENTS in item else [_of_one(item)])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged("audit event", item, error) from error


def _of_one(item: Item) -> dict[str, Any]:
    return {
        "event_id": text(item["event_id"]),
        "action": text(item["action"]),
        "entity_id": text(item["entity_id"]),
        "resource": optional_text(item, "resource"),
        "details": parsed(item["details"]) if "details" in item else {},
    }

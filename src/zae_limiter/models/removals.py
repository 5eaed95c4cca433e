"""Who has removed a limit, as the audit log tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zae_limiter.models.audit import SYSTEM_SUBJECT, AuditAction, AuditEvent
from zae_limiter.naming import DEFAULT_RESOURCE

_OF_LIMITS = (AuditAction.LIMITS_SET, AuditAction.LIMITS_DELETED)


def removal_of(
    name: str, resource: str, events: Iterable[AuditEvent], *, was_hidden: bool
) -> AuditEvent | None:
    """Return the newest event that has removed a limit of a resource; None if none has.

    With ``was_hidden``, a weaker configuration level has the limit: then the first limits of a
    stronger level have removed it, too.
    """
    removals = [event for event in events if _removes(event, name, resource, was_hidden)]
    return max(removals, key=lambda event: event.event_id, default=None)


def _removes(event: AuditEvent, name: str, resource: str, was_hidden: bool) -> bool:
    is_about_it = event.resource in (None, resource, DEFAULT_RESOURCE)
    if event.action not in _OF_LIMITS or not is_about_it or name in _names(event.details):
        return False
    before = _names(event.details.get("previous"))
    return name in before or (was_hidden and not before)


def _names(stored: Any) -> set[str]:
    """Return the names of the limits in a part of an event."""
    limits = stored.get("limits") if isinstance(stored, dict) else None
    return {limit["name"] for limit in limits or ()}


def describe_removal(name: str, event: AuditEvent) -> str:
    """Return the removal as a sentence for an error."""
    author = event.principal or "an unnamed principal"
    verb = "deleted" if event.action == AuditAction.LIMITS_DELETED else "set"
    return (
        f"{name!r} was removed by {author} at {event.timestamp}, who {verb} the limits of "
        f"{_place(event)}"
    )


def _place(event: AuditEvent) -> str:
    if event.entity_id == SYSTEM_SUBJECT:
        return "the system"
    if event.entity_id.startswith("$"):
        return f"resource {event.entity_id.partition(':')[2]!r}"
    return f"entity {event.entity_id!r}"

"""``zae-limiter audit``: list the audit events of a namespace."""

from __future__ import annotations

import heapq
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.app import CommandGroup
from zae_limiter.cli.formatting import describe_limits, format_time
from zae_limiter.cli.options import (
    check_entity,
    check_free_text,
    check_namespace_name,
    check_resource_name,
    count_option,
    output_option,
)
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import print_hint, print_result, print_table

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.store import StoreLocation
    from zae_limiter.models.audit import AuditEvent


@click.group(cls=CommandGroup)
def audit() -> None:
    """Show the audit log of changes.

    \b
    Example:
      zae-limiter audit list --entity-id key-7
    """


@audit.command("list")
@click.option(
    "--entity-id", "-e", metavar="ENTITY", callback=check_entity, help="Only events of this entity."
)
@click.option(
    "--resource",
    "-r",
    metavar="NAME",
    callback=check_resource_name,
    help="Only events of the defaults of this resource.",
)
@click.option("--system", "of_system", is_flag=True, help="Only events of the system defaults.")
@click.option(
    "--of-namespace",
    metavar="NAME",
    callback=check_namespace_name,
    help="Lifecycle events of a namespace, purged ones included.",
)
@count_option("events")
@click.option(
    "--start-event-id",
    metavar="ID",
    callback=check_free_text,
    help="Continue after the event with this id.",
)
@store_options
@output_option
def list_events(
    store: StoreLocation,
    entity_id: str | None,
    resource: str | None,
    of_system: bool,
    of_namespace: str | None,
    limit: int,
    start_event_id: str | None,
    output: str,
) -> None:
    """List audit events, newest first.

    Without a filter: events of the namespace itself, of the system defaults, and of the
    resources that have defaults now.

    \b
    Examples:
      zae-limiter audit list
      zae-limiter audit list --entity-id key-7 --limit 10
      zae-limiter audit list --namespace tenant-alpha --output json

    JSON: events (each: event_id, timestamp, action, entity_id, principal, resource, details),
    next_event_id (null at the end).
    """
    if sum(map(bool, (entity_id, resource, of_system, of_namespace))) > 1:
        raise click.UsageError(
            "give only one of --entity-id, --resource, --system and --of-namespace"
        )
    with store.open() as repository:
        subjects = _subjects(repository, entity_id, resource, of_system, of_namespace)
        # One more than wanted shows whether there is a next page.
        events = _events(repository, subjects, limit + 1, start_event_id)
    next_event_id = events[limit - 1].event_id if len(events) > limit else None
    events = events[:limit]
    if output == "json":
        data = [_event_json(event) for event in events]
        print_result(output, {"events": data, "next_event_id": next_event_id})
        return
    if events:
        print_table(
            ("when=", "who", "what=", "of", "details"),
            (
                (
                    format_time(event.timestamp),
                    event.principal,
                    event.action,
                    event.entity_id,
                    _details(event),
                )
                for event in events
            ),
        )
    else:
        print_hint(output, "no audit events are stored")
    if next_event_id is not None:
        print_hint(output, f"more: add --start-event-id {next_event_id}")


def _subjects(
    repository: SyncRepository,
    entity_id: str | None,
    resource: str | None,
    of_system: bool,
    of_namespace: str | None,
) -> list[str]:
    from zae_limiter.models.audit import SYSTEM_SUBJECT, namespace_subject, resource_subject

    if entity_id is not None:
        return [entity_id]
    if resource is not None:
        return [resource_subject(resource)]
    if of_namespace is not None:
        return [namespace_subject(of_namespace)]
    if of_system:
        return [SYSTEM_SUBJECT]
    resources = repository.list_resources_with_defaults()
    namespace = namespace_subject(repository.namespace_name)
    return [SYSTEM_SUBJECT, namespace, *map(resource_subject, resources)]


def _events(
    repository: SyncRepository, subjects: list[str], limit: int, start: str | None
) -> list[AuditEvent]:
    logs = (repository.get_audit_events(subject, limit, start) for subject in subjects)
    merged = heapq.merge(*logs, key=lambda event: event.event_id, reverse=True)
    return list(islice(merged, limit))


def _details(event: AuditEvent) -> str:
    """Describe the change in one line; for most actions, list the details as stored."""
    details = dict(event.details)
    on = f"on {event.resource}: " if event.resource and not event.entity_id.startswith("$") else ""
    if event.action in ("limits_set", "limits_deleted"):
        before = _limits((details.get("previous") or {}).get("limits"))
        if event.action == "limits_deleted":
            return f"{on}was {before}"
        policy = details.get("on_unavailable")
        outage = f"; in an outage: {policy}" if policy else ""
        return f"{on}{_limits(details.get('limits'))} (was {before}){outage}"
    given = {key: value for key, value in details.items() if value not in (None, {}, [], False)}
    return on + " ".join(f"{key}={_text(value)}" for key, value in given.items())


def _limits(stored: list[dict[str, Any]] | None) -> str:
    from zae_limiter.models.limit import Limit

    return describe_limits(Limit.from_dict(limit) for limit in stored or ())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _event_json(event: AuditEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "timestamp": event.timestamp,
        "action": event.action,
        "entity_id": event.entity_id,
        "principal": event.principal,
        "resource": event.resource,
        "details": event.details,
    }

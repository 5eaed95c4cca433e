"""``zae-limiter audit``: list the audit events of a namespace, and replay kept batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.shared.console import status
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.options import (
    check_entity,
    check_free_text,
    check_namespace_name,
    check_resource_name,
    count_option,
    output_option,
)
from zae_limiter_ops.cli.shared.records import print_records
from zae_limiter_ops.cli.shared.store_options import registry_options, store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_result
from zae_limiter_ops.views.columns import Column
from zae_limiter_ops.views.formatting import count_of, format_time

if TYPE_CHECKING:
    from zae_limiter.models.audit import AuditEvent
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.group(cls=CommandGroup)
def audit() -> None:
    """Show the audit log of changes, and complete its archive.

    \b
    Examples:
      zae-limiter audit list --entity-id key-7
      zae-limiter audit replay --name my-app --dry-run
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
    help="Lifecycle events of this namespace, even if it is purged.",
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

    Without a filter, the command lists all events of the namespace. On DynamoDB it then reads
    the keys of all items of the namespace, which takes a while in a large one.

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
        subject = _subject(entity_id, resource, of_system, of_namespace)
        with status("reading the audit log"):
            # One event more than wanted shows whether there is a next page.
            events = repository.get_audit_events(subject, limit + 1, start_event_id)
    next_event_id = events[limit - 1].event_id if len(events) > limit else None
    print_records(
        output,
        COLUMNS,
        events[:limit],
        name="events",
        if_none="no audit events are stored",
        next_event_id=next_event_id,
    )
    if next_event_id is not None:
        print_hint(output, f"more: add --start-event-id {quoted(next_event_id)}")


@audit.command()
@registry_options
@click.option("--dry-run", is_flag=True, help="Show the kept batches, and replay none.")
@output_option
def replay(store: StoreLocation, dry_run: bool, output: str) -> None:
    """Replay batches that the aggregator could not process in time.

    Lambda retries a failed batch for 23 hours, then keeps it in the archive of audit events. After
    the cause is removed, this command lets the aggregator process the kept batches, and deletes
    each batch that succeeds. It may be run again.

    \b
    Examples:
      zae-limiter audit replay --name my-app --dry-run
      zae-limiter audit replay --name my-app

    JSON: batches (names of the objects), records (their number; 0 with --dry-run).
    """
    from zae_limiter_ops._sync.infra.deployment import Deployment
    from zae_limiter_ops._sync.infra.kept_batches import KeptBatches

    place = store.stack()
    deployment = Deployment(*place)
    try:
        deployment.manager.control.require_stacks(
            "a stack keeps batches in its archive", "a table alone has neither"
        )
        bucket = deployment.manager.outputs().get("ArchiveBucket")
        if bucket is None:
            raise click.ClickException(f"{place[0]} has no archive, so no batch is kept")
        kept = KeptBatches(deployment.manager.control, place[0], bucket)
        batches = kept.names()
        counts = {} if dry_run else {batch: kept.replay(batch) for batch in batches}
    finally:
        deployment.close()
    lines = [f"kept: {batch}" for batch in batches]
    if not dry_run:
        lines = [f"replayed: {name}, {count_of(count, 'record')}" for name, count in counts.items()]
    data = {"batches": batches, "records": sum(counts.values())}
    print_result(output, data, *(lines or ["no batch is kept"]))


def _subject(
    entity_id: str | None, resource: str | None, of_system: bool, of_namespace: str | None
) -> str | None:
    """Return the subject that the options name; None stands for all of the namespace."""
    from zae_limiter.models.audit import SYSTEM_SUBJECT, namespace_subject, resource_subject

    if resource is not None:
        return resource_subject(resource)
    if of_namespace is not None:
        return namespace_subject(of_namespace)
    return SYSTEM_SUBJECT if of_system else entity_id


def _details(event: AuditEvent) -> str:
    from zae_limiter_ops.views.audit_text import describe_event

    on = f"on {event.resource}: " if event.resource and not event.entity_id.startswith("$") else ""
    return on + describe_event(event)


COLUMNS: tuple[Column[AuditEvent], ...] = (
    Column(key="event_id", value=lambda event: event.event_id),
    Column(title="when=", key="timestamp", value=lambda event: event.timestamp, format=format_time),
    Column(title="who", key="principal", value=lambda event: event.principal),
    Column(title="what=", key="action", value=lambda event: event.action),
    Column(title="of", key="entity_id", value=lambda event: event.entity_id),
    Column(key="resource", value=lambda event: event.resource),
    Column(key="details", value=lambda event: event.details),
    Column(title="details", value=_details),
)

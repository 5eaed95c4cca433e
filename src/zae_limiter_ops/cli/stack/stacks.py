"""``zae-limiter delete``, ``status`` and ``list``: deployed limiters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.errors import Interrupted, suggested
from zae_limiter_ops.cli.shared.options import output_option, yes_option
from zae_limiter_ops.cli.shared.store_options import (
    endpoint_option,
    region_option,
    registry_options,
)
from zae_limiter_ops.cli.shared.tables import print_fields, print_hint, print_result, print_table
from zae_limiter_ops.cli.stack.progress import finish_deployment, stack_progress
from zae_limiter_ops.infra.progress import TABLE_ONLY
from zae_limiter_ops.views.formatting import count_of, format_number, format_time

if TYPE_CHECKING:
    from zae_limiter.models.stack import LimiterInfo, Status
    from zae_limiter_ops.cli.shared.store import StackPlace, StoreLocation

MISSING = "-"


@click.command()
@registry_options
@yes_option
@click.option(
    "--wait/--no-wait", default=True, help="Wait until everything is deleted; default: yes."
)
@output_option
def delete(store: StoreLocation, yes: bool, wait: bool, output: str) -> None:
    """Delete a deployed limiter with all its data.

    The table is deleted with entities, limits, buckets, usage and audit events of all namespaces.
    A bucket that holds archived audit events stays and is named.

    \b
    Example:
      zae-limiter delete --name my-app --yes

    JSON: name, deleted, kept_bucket.
    """
    from zae_limiter_ops._sync.infra.deployment import Deployment

    place = store.stack()
    state = _state(place)
    if state is None:
        _finish_deletion(place, output)
        return
    stack = "" if state == TABLE_ONLY else f"stack {place[0]!r} ({state}) and its "
    confirm(
        f"this deletes {stack}table {place[0]!r} with everything in it: "
        "entities, limits, buckets, usage and audit events of all namespaces; it cannot be undone",
        "Delete it?",
        yes=yes,
    )
    with stack_progress(f"deleting {place[0]}") as on_event:
        deployment = Deployment(*place, on_event=on_event)
        try:
            deleted = deployment.delete(wait=wait)
        except KeyboardInterrupt:
            raise Interrupted(
                "; CloudFormation goes on with what was begun; see how far it is: "
                f"{suggested('status')}"
            ) from None
        finally:
            deployment.close()
    data = {"name": place[0], "deleted": wait, "kept_bucket": deleted.kept_bucket}
    print_result(output, data, f"{place[0]} {'is deleted' if wait else 'is being deleted'}")
    if deleted.kept_bucket is not None:
        print_hint(output, f"archived audit events stay in bucket {deleted.kept_bucket}")


def _finish_deletion(place: StackPlace, output: str) -> None:
    """Delete what an interrupted deletion has left; fail if there is nothing of that name."""
    from zae_limiter_ops._sync.infra.deployment import Deployment

    deployment = Deployment(*place)
    try:
        buckets = deployment.finish_deletion()
    finally:
        deployment.close()
    if not buckets:
        raise click.ClickException(
            f"there is no stack named {place[0]!r}; list the stacks: {suggested('list')}"
        )
    data = {"name": place[0], "deleted": True, "kept_bucket": None}
    print_result(
        output, data, *(f"{name}, left by an interrupted deletion, is deleted" for name in buckets)
    )


def _state(place: StackPlace) -> str | None:
    from zae_limiter_ops._sync.infra.deployment import Deployment

    deployment = Deployment(*place)
    try:
        return deployment.state()
    finally:
        deployment.close()


@click.command("list")
@region_option("AWS region to look in.")
@endpoint_option("Endpoint of a local control plane.")
@output_option
def list_stacks(region: str | None, endpoint_url: str | None, output: str) -> None:
    """List the limiters that are deployed in a region.

    Stacks of older versions, whose names begin with ZAEL-, are listed, too. On a server without
    CloudFormation, such as a local one, the tables are listed.

    \b
    Example:
      zae-limiter list --region us-east-1

    JSON: a list of: stack_name, user_name, region, stack_status, creation_time,
    last_updated_time, version, lambda_version, schema_version.
    """
    from dataclasses import asdict

    from zae_limiter_ops._sync.infra.discovery import list_deployed

    infos = list_deployed(region, endpoint_url)
    if output == "json" or not infos:
        print_result(output, [asdict(info) for info in infos], "no limiter is deployed here")
        return
    print_table(
        ("name=", "status=", "version", "functions", "schema>", "created=", "region="),
        map(_row, infos),
    )


def _row(info: LimiterInfo) -> tuple[object, ...]:
    return (
        info.stack_name,
        info.stack_status,
        info.version or MISSING,
        info.lambda_version or MISSING,
        info.schema_version or MISSING,
        format_time(info.creation_time),
        info.region,
    )


@click.command("status")
@registry_options
@output_option
def status_command(store: StoreLocation, output: str) -> None:
    """Show stack, table, functions, alarms and cost drivers.

    \b
    Example:
      zae-limiter status --name my-app --region us-east-1

    JSON: the fields of Status: name, region, available, latency_ms, cfn_status, table_status,
    aggregator_enabled, schema_version, lambda_version, client_version, table_item_count,
    table_size_bytes, details.
    """
    from dataclasses import asdict

    from zae_limiter_ops._sync.infra.status import read_status

    place = store.stack()
    found = read_status(*place)
    if found.cfn_status is None and found.table_status is None:
        notes = "; ".join(found.details["notes"])
        raise click.ClickException(
            notes or f"there is no stack or table named {place[0]!r}; list all: {suggested('list')}"
        )
    if output == "json":
        print_result(output, asdict(found))
        return
    print_fields(_fields(found))
    without_code = [each["name"] for each in found.details["functions"] if not each["has_code"]]
    if without_code:
        print_hint(output, finish_deployment(without_code))
    for note in found.details["notes"]:
        print_hint(output, f"note: {note}")


def _fields(found: Status) -> list[tuple[str, object]]:
    details = found.details
    answers = f"answers in {found.latency_ms:g} ms" if found.latency_ms is not None else "no answer"
    size = found.table_size_bytes
    items = found.table_item_count
    return [
        ("name", f"{found.name} in {found.region or 'an unknown region'}"),
        ("stack", found.cfn_status or "none: the table was created without one"),
        ("table", f"{found.table_status or 'none'}, {answers}"),
        ("schema", found.schema_version),
        ("versions", f"functions {found.lambda_version or 'none'}, client {found.client_version}"),
        *(("function", line) for function in details["functions"] for line in _function(function)),
        ("lag", _lag(details["iterator_age_ms"]) if found.aggregator_enabled else None),
        ("dead letters", details["dead_letters"]),
        ("alarms", _alarms(details["alarms"])),
        ("namespaces", details["namespaces"]),
        ("items", None if items is None else f"{format_number(items)}, {_bytes(size or 0)}"),
        ("last day", _last_day(details["last_day"])),
    ]


def _function(function: dict[str, Any]) -> list[str]:
    code = "this version's code" if function["is_current"] else "other code than this version's"
    code = code if function["has_code"] else "no code yet"
    errors = count_of(function["errors_last_hour"] or 0, "error")
    parts = [function["state"] or "unknown", code, *_stream(function)]
    lines = [f"{function['name']}: {', '.join(parts)}, {errors} in the last hour"]
    if function["last_error"]:
        lines.append(f"last error: {function['last_error']}")
    return lines


def _stream(function: dict[str, Any]) -> list[str]:
    """Return how the aggregator is connected to the stream; other functions are not."""
    if not function["name"].endswith("-aggregator"):
        return []
    source = function["event_source"] or {}
    return [f"stream {source.get('state') or 'not connected'}"]


def _lag(milliseconds: int | None) -> str:
    return (
        "unknown, nothing was processed in the last hour"
        if milliseconds is None
        else (f"{milliseconds / 1000:g} s")
    )


def _alarms(alarms: dict[str, str] | None) -> str | None:
    if alarms is None:
        return None
    raised = sorted(name for name, state in alarms.items() if state == "ALARM")
    return f"{len(raised)} of {len(alarms)} raised" + (f": {', '.join(raised)}" if raised else "")


def _bytes(count: int) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _last_day(drivers: dict[str, int | None]) -> str:
    names = {
        "write_units": "write units",
        "read_units": "read units",
        "invocations": "function calls",
    }
    return ", ".join(
        f"{format_number(value)} {names[name]}"
        for name, value in drivers.items()
        if value is not None
    )

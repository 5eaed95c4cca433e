"""``zae-limiter bucket``: show, list, reset, top up and pause token buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.bucket.listing import list_buckets
from zae_limiter_ops.cli.shared.completion import complete_resource
from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.errors import did_you_mean, suggested
from zae_limiter_ops.cli.shared.formatting import (
    count_of,
    format_duration,
    format_hour,
    format_rate,
    format_time,
    format_tokens,
)
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
from zae_limiter_ops.cli.shared.options import (
    check_resource_name,
    entity_argument,
    output_option,
    principal_option,
    resource_argument,
    yes_option,
)
from zae_limiter_ops.cli.shared.param_types import Seconds, amounts_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter_ops.cli.shared.lookups import BucketView
    from zae_limiter_ops.cli.shared.store import StoreLocation


# As in zae_limiter.models.bucket, which is not imported here: help must not import the library.
MAX_PAUSE_S = 600
PAUSE = Seconds(0, MAX_PAUSE_S)
WITHOUT_RESOURCE = "--all-resources is about all of them; leave out RESOURCE"

optional_resource = click.argument(
    "resource",
    metavar="[RESOURCE]",
    required=False,
    callback=check_resource_name,
    shell_complete=complete_resource,
)
all_resources_option = click.option(
    "--all-resources", is_flag=True, help="All resources of the entity, instead of RESOURCE."
)


@click.group(cls=CommandGroup)
def bucket() -> None:
    """Show, list, reset, top up and pause token buckets.

    \b
    Examples:
      zae-limiter bucket show key-7 gpt-4
      zae-limiter bucket list --limited
    """


bucket.add_command(list_buckets)


@bucket.command("show")
@entity_argument
@optional_resource
@store_options
@output_option
def show_buckets(store: StoreLocation, entity_id: str, resource: str | None, output: str) -> None:
    """Show level, debt, waiting time and last use.

    The waiting time is until one token can be taken, provided that nothing else is charged
    until then. A bucket that is not listed is full: it was never used, or has expired since.

    \b
    Examples:
      zae-limiter bucket show key-7
      zae-limiter bucket show key-7 gpt-4 --output json

    JSON: entity_id, buckets (each: resource, limit_name, level_milli, debt_milli (thousandths of
    a token), capacity, refill_amount (0 for calls in flight), refill_period_seconds (for calls in
    flight the TTL of a lease), retry_after_seconds (until one token), full_after_seconds,
    consumed_milli, from_call (the limit was passed by calls), limits_changed (others are in force
    now), paused_until (null if it is not paused), last_used_hour).
    """
    from zae_limiter_ops.cli.shared.lookups import view_buckets

    def fetch(
        other: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[BucketState], str | None]:
        return other.get_buckets(entity_id, resource), None

    with store.open() as repository:
        buckets = view_buckets(repository, entity_id, resource)
        if not buckets:
            print_hint(output, _unused(repository, entity_id, resource))
            Namespaces(repository, are_all=False).hint(output, fetch, with_all=False)
    _report(output, entity_id, buckets)


@bucket.command()
@entity_argument
@optional_resource
@all_resources_option
@yes_option
@principal_option
@store_options
@output_option
def reset(
    store: StoreLocation,
    entity_id: str,
    resource: str | None,
    all_resources: bool,
    yes: bool,
    principal: str | None,
    output: str,
) -> None:
    """Fill every limit of a bucket and cancel its debts. Usage keeps what was consumed.

    With --all-resources, all buckets of the entity.

    \b
    Examples:
      zae-limiter bucket reset key-7 gpt-4
      zae-limiter bucket reset key-7 --all-resources

    JSON: as bucket show, after the reset.
    """
    from zae_limiter_ops.cli.shared.lookups import view_buckets

    if all_resources and resource is not None:
        raise click.UsageError(WITHOUT_RESOURCE)
    if not all_resources and resource is None:
        raise click.UsageError("give RESOURCE, or --all-resources")
    with store.open() as repository:
        before = view_buckets(repository, entity_id, resource)
        if not before:
            raise click.ClickException(_unused(repository, entity_id, resource))
        resources = list(dict.fromkeys(view.state.resource for view in before))
        where = repr(resource) if resource else count_of(len(resources), "resource")
        confirm(
            f"This fills {'the bucket' if resource else 'all buckets'} of {entity_id!r} on {where} "
            f"({_changes(before, resource)}): its calls are admitted again, debts are cancelled",
            "Reset it?" if resource else "Reset them?",
            yes=yes,
        )
        _change_each(resources, lambda name: repository.reset_bucket(entity_id, name, principal))
        after = view_buckets(repository, entity_id, resource)
    _report(output, entity_id, after)


def _changes(before: list[BucketView], resource: str | None) -> str:
    """Return what a reset does to each limit, by resource if it is about several."""
    by_resource: dict[str, list[str]] = {}
    for view in before:
        state = view.state
        levels = f"{format_tokens(state.tokens_milli)} to {format_tokens(state.capacity_milli)}"
        by_resource.setdefault(state.resource, []).append(f"{state.limit_name} from {levels}")
    if resource is not None:
        return ", ".join(by_resource[resource])
    return "; ".join(f"{name}: {', '.join(texts)}" for name, texts in by_resource.items())


@bucket.command("top-up")
@entity_argument
@resource_argument
@amounts_option("--add", "-a", required=True, help="Tokens to add to a limit; may be repeated.")
@principal_option
@store_options
@output_option
def top_up(
    store: StoreLocation,
    entity_id: str,
    resource: str,
    amounts: dict[str, int],
    principal: str | None,
    output: str,
) -> None:
    """Add tokens to a bucket, up to its capacity. Usage keeps what was consumed.

    \b
    Example:
      zae-limiter bucket top-up key-7 gpt-4 -a tpm=5000

    JSON: as bucket show, after the top-up.
    """
    from zae_limiter_ops.cli.shared.lookups import view_buckets

    with store.open() as repository:
        names = {state.limit_name for state in repository.get_buckets(entity_id, resource)}
        if not names:
            raise click.ClickException(_unused(repository, entity_id, resource))
        for name in amounts:
            if name not in names:
                suggestion = did_you_mean(name, names)
                listed = ", ".join(sorted(names))
                raise click.UsageError(
                    f"{name!r} is not a limit of this bucket, which has {listed}{suggestion}"
                )
        repository.top_up(entity_id, resource, amounts, principal)
        after = view_buckets(repository, entity_id, resource)
    _report(output, entity_id, after)


@bucket.command()
@entity_argument
@optional_resource
@click.argument("pause_s", type=PAUSE, metavar="SECONDS", required=False)
@all_resources_option
@principal_option
@store_options
@output_option
def pause(
    store: StoreLocation,
    entity_id: str,
    resource: str | None,
    pause_s: float | None,
    all_resources: bool,
    principal: str | None,
    output: str,
) -> None:
    """Admit nothing from a bucket for a while, or lift its pause.

    For at most 600 seconds; 0 lifts the pause, and a shorter one than is under way changes
    nothing. Calls are rejected with what is left of it as their waiting time. Levels and usage
    stay as they are. A bucket that was never used is paused, too. With --all-resources, the
    entity is paused on every resource that has limits or is in use; a resource that is used for
    the first time later is not paused.

    \b
    Examples:
      zae-limiter bucket pause key-7 gpt-4 30
      zae-limiter bucket pause key-7 gpt-4 0
      zae-limiter bucket pause key-7 300 --all-resources

    JSON: as bucket show, after the change.
    """
    from zae_limiter_ops.cli.shared.lookups import is_known_entity, similar_entities, view_buckets

    resource, seconds = _pause_target(resource, pause_s, all_resources)
    with store.open() as repository:
        is_known = is_known_entity(repository, entity_id)
        resources = [resource] if resource else repository.list_resources()
        _change_each(resources, lambda name: repository.pause(entity_id, name, seconds, principal))
        after = view_buckets(repository, entity_id, resource)
        if not is_known:
            suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
            print_hint(output, f"{entity_id!r} was not known before{suggestion}")
    _report(output, entity_id, after)
    limited = {view.state.resource for view in after}
    unlimited = [name for name in resources if name not in limited]
    if seconds and unlimited:
        names = ", ".join(map(repr, unlimited))
        print_hint(output, f"no limits are stored for {names}; calls that bring theirs are paused")


def _change_each(resources: list[str], change: Callable[[str], None]) -> None:
    """Make a change on each resource. A failure after the first says which ones are left."""
    from zae_limiter.exceptions import PermissionDenied, RateLimiterUnavailable

    for number, name in enumerate(resources):
        try:
            change(name)
        except (PermissionDenied, RateLimiterUnavailable) as error:
            if number == 0:
                raise
            done, left = ", ".join(resources[:number]), ", ".join(resources[number:])
            raise click.ClickException(
                f"{error}; it failed after {done}; not done: {left}; run the command again"
            ) from error


def _pause_target(
    resource: str | None, pause_s: float | None, all_resources: bool
) -> tuple[str | None, float]:
    """Return the resource, None for all of them, and the seconds.

    With --all-resources the seconds are the second argument, which is otherwise the resource.
    """
    if not all_resources:
        if pause_s is None:
            raise click.UsageError("give RESOURCE and SECONDS, or --all-resources and SECONDS")
        return resource, pause_s
    if pause_s is not None:
        raise click.UsageError(WITHOUT_RESOURCE)
    if resource is None:
        raise click.UsageError("give SECONDS: 0 lifts a pause")
    return None, PAUSE.convert(resource, None, click.get_current_context())


def _report(output: str, entity_id: str, buckets: list[BucketView]) -> None:
    if output == "json":
        data = [_bucket_json(view) for view in buckets]
        print_result(output, {"entity_id": entity_id, "buckets": data})
    elif buckets:
        heads = ("resource", "limit", "level>", "of>", "refill>", "1 token=", "full=")
        print_table(heads, map(_row, buckets))
        print_line("")
        for view in {view.state.resource: view for view in buckets}.values():
            if view.paused_until is not None:
                left = format_duration(view.paused_seconds)
                until = format_time(view.paused_until)
                print_line(f"paused on {view.state.resource} until {until}, for {left} more")
        last_used = {view.state.resource: view.last_used_hour for view in buckets}
        for resource, start in last_used.items():
            print_line(f"last use on {resource}: {_last_use(start)}")
        if any(view.debt_milli for view in buckets):
            print_hint(
                output, "a level below zero is a debt: it stops every call until it is repaid"
            )
        if any(view.limits_changed for view in buckets):
            print_hint(
                output,
                "limits have changed since the last acquire; those of the next one: "
                f"{suggested('explain', entity_id, 'RESOURCE')}",
            )


def _row(view: BucketView) -> tuple[object, ...]:
    state = view.state
    wait = format_duration(view.retry_after_seconds)
    return (
        state.resource,
        state.limit_name + (" (of calls)" if view.from_call else ""),
        f"{state.tokens:,}",
        f"{state.capacity:,}",
        format_rate(state.limit),
        wait if wait == "now" else f"in {wait}",
        "yes" if view.full_after_seconds <= 0 else f"in {format_duration(view.full_after_seconds)}",
    )


def _last_use(start: str | None) -> str:
    return f"in the hour of {format_hour(start)}" if start else "not known"


def _bucket_json(view: BucketView) -> dict[str, Any]:
    state = view.state
    return {
        "resource": state.resource,
        "limit_name": state.limit_name,
        "level_milli": state.tokens_milli,
        "debt_milli": view.debt_milli,
        "capacity": state.capacity,
        "refill_amount": state.limit.refill_amount,
        "refill_period_seconds": state.limit.refill_period_seconds,
        "retry_after_seconds": view.retry_after_seconds,
        "full_after_seconds": view.full_after_seconds,
        "consumed_milli": state.total_consumed_milli,
        "from_call": view.from_call,
        "limits_changed": view.limits_changed,
        "paused_until": view.paused_until,
        "last_used_hour": view.last_used_hour,
    }


def _unused(repository: SyncRepository, entity_id: str, resource: str | None) -> str:
    """Explain why there is no bucket, with the names that may have been meant."""
    used = sorted({state.resource for state in repository.get_buckets(entity_id)})
    if resource is not None and used:
        suggestion = did_you_mean(resource, used)
        return (
            f"{entity_id!r} has no bucket on {resource!r}, so it is full there{suggestion}; "
            f"it has buckets on {', '.join(used)}"
        )
    from zae_limiter_ops.cli.shared.lookups import similar_entities

    suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return f"{entity_id!r} has no buckets (unused or expired), so they are full{suggestion}"

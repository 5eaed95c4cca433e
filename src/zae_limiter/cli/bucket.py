"""``zae-limiter bucket``: levels, and mending them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.completion import complete_resource
from zae_limiter.cli.consent import confirm
from zae_limiter.cli.groups import CommandGroup, did_you_mean
from zae_limiter.cli.options import (
    check_resource_name,
    entity_argument,
    output_option,
    principal_option,
    resource_argument,
    yes_option,
)
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import hint, print_table, say, show
from zae_limiter.cli.values import amounts_option
from zae_limiter.cli.words import duration, hour, rate, tokens

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli.inspection import BucketView
    from zae_limiter.cli.store import Store


@click.group(cls=CommandGroup)
def bucket() -> None:
    """Levels of the token buckets, and mending them.

    \b
    Example:
      zae-limiter bucket show key-7 gpt-4
    """


@bucket.command("show")
@entity_argument
@click.argument(
    "resource",
    metavar="[RESOURCE]",
    required=False,
    callback=check_resource_name,
    shell_complete=complete_resource,
)
@store_options
@output_option
def show_buckets(store: Store, entity_id: str, resource: str | None, output: str) -> None:
    """Show level, debt, waiting time and last use.

    The waiting time is until one token can be taken, if nobody else comes. A bucket that
    is not listed has not been used, or not for long: it is full.

    \b
    Examples:
      zae-limiter bucket show key-7
      zae-limiter bucket show key-7 gpt-4 --output json

    JSON: entity_id, buckets (each: resource, limit_name, level_milli, debt_milli (thousandths of
    a token), capacity, refill_amount, refill_period_seconds, retry_after_seconds (until one
    token), full_after_seconds, consumed_milli, from_call (the limit came with calls),
    limits_changed (other ones are in force by now), last_used_hour).
    """
    from zae_limiter.cli.inspection import view_buckets

    with store.open() as repository:
        found = view_buckets(repository, entity_id, resource)
        if not found:
            hint(output, _unused(repository, entity_id, resource))
    _report(output, entity_id, found)


@bucket.command()
@entity_argument
@resource_argument
@yes_option
@principal_option
@store_options
@output_option
def reset(
    store: Store, entity_id: str, resource: str, yes: bool, principal: str | None, output: str
) -> None:
    """Fill every limit of a bucket, debts included. Consumption stays counted.

    \b
    Example:
      zae-limiter bucket reset key-7 gpt-4

    JSON: as bucket show, after the reset.
    """
    from zae_limiter.cli.inspection import view_buckets

    with store.open() as repository:
        before = view_buckets(repository, entity_id, resource)
        if not before:
            raise click.ClickException(_unused(repository, entity_id, resource))
        levels = ", ".join(
            f"{each.state.limit_name} from {tokens(each.state.tokens_milli)} "
            f"to {tokens(each.state.capacity_milli)}"
            for each in before
        )
        confirm(
            f"This fills the bucket of {entity_id!r} on {resource!r} ({levels}): its calls are "
            "admitted again, debts are forgiven",
            "Reset it?",
            yes=yes,
        )
        repository.reset_bucket(entity_id, resource, principal)
        after = view_buckets(repository, entity_id, resource)
    _report(output, entity_id, after)


@bucket.command("top-up")
@entity_argument
@resource_argument
@amounts_option("--add", "-a", required=True, help="Tokens to add; may be repeated.")
@principal_option
@store_options
@output_option
def top_up(
    store: Store,
    entity_id: str,
    resource: str,
    amounts: dict[str, int],
    principal: str | None,
    output: str,
) -> None:
    """Add tokens to a bucket, up to its capacity. Consumption stays counted.

    \b
    Example:
      zae-limiter bucket top-up key-7 gpt-4 -a tpm=5000

    JSON: as bucket show, after the top-up.
    """
    from zae_limiter.cli.inspection import view_buckets

    with store.open() as repository:
        before = {state.limit_name for state in repository.get_buckets(entity_id, resource)}
        if not before:
            raise click.ClickException(_unused(repository, entity_id, resource))
        for name in amounts:
            if name not in before:
                near = did_you_mean(name, before)
                known = ", ".join(sorted(before))
                raise click.UsageError(f"{name!r} is not a limit of this bucket: {known}{near}")
        repository.top_up(entity_id, resource, amounts, principal)
        after = view_buckets(repository, entity_id, resource)
    _report(output, entity_id, after)


def _report(output: str, entity_id: str, found: list[BucketView]) -> None:
    if output == "json":
        show(output, {"entity_id": entity_id, "buckets": [_bucket_json(each) for each in found]})
    elif found:
        print_table(
            (
                "resource",
                "limit",
                "level>",
                "of>",
                "refill>",
                "1 token=",
                "full=",
            ),
            map(_row, found),
        )
        say("")
        for resource, when in {each.state.resource: each.last_used_hour for each in found}.items():
            say(f"last use on {resource}: {_last_use(when)}")
        if any(each.debt_milli for each in found):
            hint(output, "a level below zero is a debt: it stops every call until it is repaid")
        if any(each.limits_changed for each in found):
            hint(
                output,
                "limits have changed since the last acquire; what the next one goes by: "
                f"zae-limiter explain {entity_id} RESOURCE",
            )


def _row(each: BucketView) -> tuple[object, ...]:
    state = each.state
    wait = duration(each.retry_after_seconds)
    return (
        state.resource,
        state.limit_name + (" (of calls)" if each.from_call else ""),
        f"{state.tokens:,}",
        f"{state.capacity:,}",
        rate(state.limit),
        wait if wait == "now" else f"in {wait}",
        "yes" if each.full_after_seconds <= 0 else f"in {duration(each.full_after_seconds)}",
    )


def _last_use(start: str | None) -> str:
    return f"in the hour of {hour(start)}" if start else "not known"


def _bucket_json(each: BucketView) -> dict[str, Any]:
    state = each.state
    return {
        "resource": state.resource,
        "limit_name": state.limit_name,
        "level_milli": state.tokens_milli,
        "debt_milli": each.debt_milli,
        "capacity": state.capacity,
        "refill_amount": state.limit.refill_amount,
        "refill_period_seconds": state.limit.refill_period_seconds,
        "retry_after_seconds": each.retry_after_seconds,
        "full_after_seconds": each.full_after_seconds,
        "consumed_milli": state.total_consumed_milli,
        "from_call": each.from_call,
        "limits_changed": each.limits_changed,
        "last_used_hour": each.last_used_hour,
    }


def _unused(repository: SyncRepository, entity_id: str, resource: str | None) -> str:
    used = sorted({state.resource for state in repository.get_buckets(entity_id)})
    if resource is not None and used:
        near = did_you_mean(resource, used)
        return (
            f"{entity_id!r} has no bucket on {resource!r}, so it is full there{near}; "
            f"it has buckets on {', '.join(used)}"
        )
    from zae_limiter.cli.inspection import similar_entities

    near = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return f"{entity_id!r} has used nothing, or not for long: its buckets are full{near}"

"""``zae-limiter bucket reset``, ``top-up`` and ``pause``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter.exceptions import IncompatibleSchemaError, PermissionDenied, RateLimiterUnavailable
from zae_limiter_ops.cli.bucket.report import describe_missing, report_buckets
from zae_limiter_ops.cli.shared.console import confirm
from zae_limiter_ops.cli.shared.options import (
    entity_argument,
    optional_resource_argument,
    output_option,
    principal_option,
    resource_argument,
    yes_option,
)
from zae_limiter_ops.cli.shared.param_types import Seconds, amounts_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint
from zae_limiter_ops.cli.shared.unknown_names import warn_unknown
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.formatting import count_of, format_level
from zae_limiter_ops.views.names import unknown_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from zae_limiter import SyncRepository
    from zae_limiter_ops.cli.shared.store import StoreLocation
    from zae_limiter_ops.views.limit_view import UsedLimit


# The same value as in zae_limiter.models.bucket, which the help must not import.
MAX_PAUSE_S = 600
PAUSE = Seconds(0, MAX_PAUSE_S)
WITHOUT_RESOURCE = "--all-resources stands for all resources; leave out RESOURCE"

all_resources_option = click.option(
    "--all-resources", is_flag=True, help="Change all resources of the entity, instead of RESOURCE."
)


@click.command()
@entity_argument
@optional_resource_argument
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
    """Fill every limit of a bucket and cancel its debts. Usage is kept.

    With --all-resources, the command resets all buckets of the entity.

    \b
    Examples:
      zae-limiter bucket reset key-7 gpt-4
      zae-limiter bucket reset key-7 --all-resources

    JSON: as bucket show, after the reset.
    """
    from zae_limiter_ops.views.limit_view import view_buckets

    if all_resources and resource is not None:
        raise click.UsageError(WITHOUT_RESOURCE)
    if not all_resources and resource is None:
        raise click.UsageError("give RESOURCE, or --all-resources")
    with store.open() as repository:
        try:
            before = view_buckets(repository, entity_id, resource)
        except IncompatibleSchemaError as error:
            unreadable = [name for _, name in error.buckets] if resource is None else [resource]
            if not unreadable:
                raise
            where = ", ".join(map(repr, unreadable))
            confirm(
                f"{error}. This replaces the bucket of {entity_id!r} on {where} by a full one",
                "Replace it?",
                yes=yes,
            )
            _change_each(
                unreadable, lambda name: repository.reset_bucket(entity_id, name, principal)
            )
            before = view_buckets(repository, entity_id, resource)
            if resource or not before:
                report_buckets(output, entity_id, before)
                return
        if not before:
            raise click.ClickException(describe_missing(repository, entity_id, resource))
        resources = list(dict.fromkeys(limit.view.resource for limit in before))
        where = repr(resource) if resource else count_of(len(resources), "resource")
        confirm(
            f"This fills {'the bucket' if resource else 'all buckets'} of {entity_id!r} on {where} "
            f"({_changes(before, resource)}): its calls are admitted again, debts are cancelled",
            "Reset it?" if resource else "Reset them?",
            yes=yes,
        )
        _change_each(resources, lambda name: repository.reset_bucket(entity_id, name, principal))
        after = view_buckets(repository, entity_id, resource)
    report_buckets(output, entity_id, after)


def _changes(before: list[UsedLimit], resource: str | None) -> str:
    """Return the change of each limit by a reset, by resource if there are several."""
    by_resource: dict[str, list[str]] = {}
    for limit in before:
        state = limit.view.state
        levels = [
            format_level(state.limit, units) for units in (state.tokens_milli, state.capacity_milli)
        ]
        by_resource.setdefault(state.resource, []).append(
            f"{state.limit_name} from {' to '.join(levels)}"
        )
    if resource is not None:
        return ", ".join(by_resource[resource])
    return "; ".join(f"{name}: {', '.join(texts)}" for name, texts in by_resource.items())


@click.command("top-up")
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
    """Add tokens to a bucket, up to its capacity. Usage is kept.

    \b
    Example:
      zae-limiter bucket top-up key-7 gpt-4 -a tpm=5000

    JSON: as bucket show, after the top-up.
    """
    from zae_limiter_ops.views.limit_view import view_buckets

    with store.open() as repository:
        names = {state.limit_name for state in repository.get_buckets(entity_id, resource)}
        if not names:
            raise click.ClickException(describe_missing(repository, entity_id, resource))
        for name in amounts:
            if name not in names:
                suggestion = did_you_mean(name, names)
                listed = ", ".join(sorted(names))
                raise click.UsageError(
                    f"{name!r} is not a limit of this bucket, which has {listed}{suggestion}"
                )
        repository.top_up(entity_id, resource, amounts, principal)
        after = view_buckets(repository, entity_id, resource)
    report_buckets(output, entity_id, after)


@click.command()
@entity_argument
@optional_resource_argument
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

    A pause lasts at most 600 seconds. 0 seconds lift the pause; a pause that ends before the
    current one changes nothing. Calls are rejected with the rest of the pause as their waiting
    time. Levels and usage stay as they are. A bucket that was never used can be paused, too. With
    --all-resources, the entity is paused on every resource that has limits or is in use, but not
    on a resource that is used for the first time later.

    \b
    Examples:
      zae-limiter bucket pause key-7 gpt-4 30
      zae-limiter bucket pause key-7 gpt-4 0
      zae-limiter bucket pause key-7 300 --all-resources

    JSON: as bucket show, after the change.
    """
    from zae_limiter_ops.views.limit_view import view_buckets

    resource, seconds = _pause_target(resource, pause_s, all_resources)
    with store.open() as repository:
        unknown = unknown_names(repository, entity_id, resource)
        resources = [resource] if resource else _all_resources(repository, entity_id)
        if not resources:
            raise click.ClickException(
                "no resource of this namespace has limits or is in use, so nothing was paused; "
                "check --namespace, or give RESOURCE"
            )
        _change_each(resources, lambda name: repository.pause(entity_id, name, seconds, principal))
        after = view_buckets(repository, entity_id, resource)
    warn_unknown(output, unknown)
    report_buckets(output, entity_id, after)
    limited = {limit.view.resource for limit in after}
    unlimited = [name for name in resources if name not in limited]
    if seconds and unlimited:
        names = ", ".join(map(repr, unlimited))
        print_hint(
            output, f"no limits are stored for {names}; only calls that pass limits are paused"
        )


def _all_resources(repository: SyncRepository, entity_id: str) -> list[str]:
    """Return the resources with limits or in use, sorted, and those that the entity has buckets on.

    A resource is registered as in use after its first acquire; the bucket is there before.
    """
    used = {state.resource for state in repository.get_buckets(entity_id)}
    return sorted(used.union(repository.list_resources()))


def _change_each(resources: list[str], change: Callable[[str], None]) -> None:
    """Make a change on each resource. A failure names the resources that are not done."""
    for number, name in enumerate(resources):
        try:
            change(name)
        except (PermissionDenied, RateLimiterUnavailable) as error:
            if number == 0:
                raise
            done, left = ", ".join(resources[:number]), ", ".join(resources[number:])
            raise click.ClickException(
                f"{error}; done before the failure: {done}; not done: {left}; run the command again"
            ) from error


def _pause_target(
    resource: str | None, pause_s: float | None, all_resources: bool
) -> tuple[str | None, float]:
    """Return the resource, which is None for all resources, and the seconds.

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

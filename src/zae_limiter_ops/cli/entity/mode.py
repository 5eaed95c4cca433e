"""``zae-limiter entity set-mode``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.modes import (
    INHERIT,
    NAMES,
    force_option,
    report_mode,
    until_option,
    warn_of_caches,
)
from zae_limiter_ops.cli.shared.options import (
    entity_argument,
    output_option,
    principal_option,
    resource_filter,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.unknown_names import refuse_unknown, warn_unknown
from zae_limiter_ops.views.modes import DENY
from zae_limiter_ops.views.names import unknown_names

if TYPE_CHECKING:
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.command("set-mode")
@entity_argument
@click.argument("mode", metavar="MODE", type=click.Choice((*NAMES, INHERIT)))
@resource_filter("Only this resource; default: all resources of the entity.")
@until_option
@force_option
@principal_option
@store_options
@output_option
def set_mode(
    store: StoreLocation,
    entity_id: str,
    mode: str,
    resource: str | None,
    until: str | None,
    force: bool,
    principal: str | None,
    output: str,
) -> None:
    """Enforce limits, let calls through, or reject them.

    MODE is enforce, shadow (charge every call, reject none), bypass (count usage only), deny
    (reject every call) or inherit (no mode of its own: that of the resource counts). Deny wins over
    all other modes; otherwise the mode of an entity wins over that of a resource. Clients apply a
    mode within their cache time, by default a minute; to stop a bucket at once see bucket pause. A
    key or a resource that was never seen is denied with --force only.

    \b
    Examples:
      zae-limiter entity set-mode key-7 deny
      zae-limiter entity set-mode key-7 bypass --resource gpt-4 --until 2099-01-01T00:00:00Z
      zae-limiter entity set-mode key-7 inherit

    JSON: entity_id, resource (null: all), mode, until, changed.
    """
    with store.open(create=True) as repository:
        unknown = unknown_names(repository, entity_id, resource)
        if mode == DENY:
            refuse_unknown(unknown, force=force)
        before = repository.get_mode(resource, entity_id)
        wanted = None if mode == INHERIT else mode
        changed = repository.set_mode(resource, entity_id, wanted, until, principal)  # type: ignore[arg-type]
        after = repository.get_mode(resource, entity_id)
    subject = {"entity_id": entity_id, "resource": resource}
    label = f"{entity_id} on {resource or 'all resources'}"
    warn_unknown(output, unknown)
    report_mode(output, subject, label, (before, after), changed)
    if mode == DENY:
        where = (entity_id, resource, "600") if resource else (entity_id, "600")
        options = () if resource else ("--all-resources",)
        pause = suggested("bucket", "pause", *where, options=options)
        warn_of_caches(output, f"; to stop its calls at once: {pause}")

"""``zae-limiter bucket``: the group, and ``bucket show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zae_limiter_ops.cli.bucket.changes import pause, reset, top_up
from zae_limiter_ops.cli.bucket.listing import list_buckets
from zae_limiter_ops.cli.bucket.report import describe_missing, report_buckets
from zae_limiter_ops.cli.shared.groups import CommandGroup
from zae_limiter_ops.cli.shared.namespace_pages import Namespaces
from zae_limiter_ops.cli.shared.options import (
    entity_argument,
    optional_resource_argument,
    output_option,
)
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter_ops.cli.shared.store import StoreLocation


@click.group(cls=CommandGroup)
def bucket() -> None:
    """Show, list, reset, top up and pause token buckets.

    \b
    Examples:
      zae-limiter bucket show key-7 gpt-4
      zae-limiter bucket list --limited
    """


@bucket.command("show")
@entity_argument
@optional_resource_argument
@store_options
@output_option
def show_buckets(store: StoreLocation, entity_id: str, resource: str | None, output: str) -> None:
    """Show level, debt, waiting time and last use.

    The waiting time ends when one token can be taken, provided that nothing else is charged
    until then. A bucket that is not listed is full: it was never used, or it has expired. For a
    quota or budget, a line shows the rest, the used and the held amount, and the next window.

    \b
    Examples:
      zae-limiter bucket show key-7
      zae-limiter bucket show key-7 gpt-4 --output json

    JSON: entity_id, buckets (each: resource, limit_name, level_milli, debt_milli (thousandths of
    a token, null for money), level_billionths, debt_billionths (of the currency unit, null for
    tokens), capacity, refill_amount (0 for calls in flight), used, held,
    window_start, window_end (these four of quotas), currency (of a budget, whose amounts are
    texts), refill_period_seconds (for calls in flight the TTL of a lease), retry_after_seconds
    (until one token, 0 for soft limits), full_after_seconds, consumed_milli, consumed_billionths,
    from_call (the limit was passed by
    calls), limits_changed (others are in force now), paused_until (null if it is not paused),
    last_used_hour, mode, mode_until).
    """
    from zae_limiter_ops.views.limit_view import view_buckets

    def fetch(
        other: SyncRepository, size: int, cursor: str | None
    ) -> tuple[list[BucketState], str | None]:
        return other.get_buckets(entity_id, resource), None

    with store.open() as repository:
        buckets = view_buckets(repository, entity_id, resource)
        if not buckets:
            print_hint(output, describe_missing(repository, entity_id, resource))
            Namespaces(repository, are_all=False).hint(output, fetch, with_all=False)
    report_buckets(output, entity_id, buckets)


for _command in (list_buckets, reset, top_up, pause):
    bucket.add_command(_command)

"""The report of ``bucket show`` and of the commands that change buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.shell_words import quoted
from zae_limiter_ops.cli.bucket.columns import SHOWN_COLUMNS
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result
from zae_limiter_ops.views.advice import did_you_mean
from zae_limiter_ops.views.columns import json_of
from zae_limiter_ops.views.formatting import format_duration, format_hour, format_time

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter_ops.views.limit_view import LimitView, UsedLimit


def report_buckets(output: str, entity_id: str, buckets: list[UsedLimit]) -> None:
    """Print the limits of the buckets of an entity, their pauses and their last use."""
    if output == "json":
        data = [json_of(SHOWN_COLUMNS, view) for view in buckets]
        print_result(output, {"entity_id": entity_id, "buckets": data})
    elif buckets:
        print_columns(SHOWN_COLUMNS, buckets)
        print_line("")
        _print_modes(buckets)
        _print_windows(buckets)
        _print_pauses(buckets)
        _print_last_uses(buckets)
        _print_notes(output, entity_id, buckets)


def _print_modes(buckets: list[UsedLimit]) -> None:
    for view in _first_limits(buckets):
        if view.mode.source is not None:
            print_line(f"mode on {view.resource}: {view.mode.text}")


def _first_limits(buckets: list[UsedLimit]) -> list[LimitView]:
    """Return a limit of each bucket."""
    return list({limit.view.bucket: limit.view for limit in buckets}.values())


def _print_windows(buckets: list[UsedLimit]) -> None:
    """Print the use of each quota in its window."""
    from zae_limiter.models.window_text import describe_use

    for view, *_ in buckets:
        if view.is_quota:
            print_line(f"on {view.resource}, {describe_use(view.state)}")


def _print_pauses(buckets: list[UsedLimit]) -> None:
    for view in _first_limits(buckets):
        if view.paused_until is not None:
            left, until = format_duration(view.paused_seconds), format_time(view.paused_until)
            print_line(f"paused on {view.resource} until {until}, for {left} more")


def _print_last_uses(buckets: list[UsedLimit]) -> None:
    last_used = {limit.view.resource: limit.last_used_hour for limit in buckets}
    for resource, start in last_used.items():
        when = f"in the hour of {format_hour(start)}" if start else "not known"
        print_line(f"last use on {resource}: {when}")


def _print_notes(output: str, entity_id: str, buckets: list[UsedLimit]) -> None:
    if any(limit.view.debt for limit in buckets):
        print_hint(output, "a level below zero is a debt: it stops every call until it is repaid")
    if any(limit.limits_changed for limit in buckets):
        print_hint(
            output,
            "the limits have changed since the last acquire, and are shown as the next one finds "
            "them; for where they come from: "
            f"{suggested('explain', entity_id, 'RESOURCE')}",
        )


def describe_missing(repository: SyncRepository, entity_id: str, resource: str | None) -> str:
    """Say that there is no bucket, with similar names in case of a typo."""
    used = sorted({state.resource for state in repository.get_buckets(entity_id)})
    if resource is not None and used:
        suggestion = did_you_mean(resource, used)
        return (
            f"{quoted(entity_id)} has no bucket on {resource!r}, so it is full there{suggestion}; "
            f"it has buckets on {', '.join(used)}"
        )
    from zae_limiter_ops.views.names import similar_entities

    suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
    return f"{quoted(entity_id)} has no buckets (unused or expired), so they are full{suggestion}"

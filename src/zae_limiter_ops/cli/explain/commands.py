"""``zae-limiter explain``: whether the next acquire would be admitted, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from zae_limiter_ops.cli.shared.errors import FAILED, LIMITED, did_you_mean
from zae_limiter_ops.cli.shared.formatting import (
    LEVELS,
    count_of,
    describe_limits,
    format_duration,
    format_hour,
    format_rate,
    limits_json,
    seconds_json,
)
from zae_limiter_ops.cli.shared.options import entity_argument, output_option, resource_argument
from zae_limiter_ops.cli.shared.param_types import amounts_option
from zae_limiter_ops.cli.shared.store_options import store_options
from zae_limiter_ops.cli.shared.tables import print_hint, print_line, print_result, print_table

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.status import LimitStatus
    from zae_limiter_ops.cli.explain.explanation import Explanation, Resolution
    from zae_limiter_ops.cli.shared.store import StoreLocation

ANSWER_STYLES = {"ADMITTED": "green", "LIMITED": "red", "ERROR": "red"}


@click.command()
@entity_argument
@resource_argument
@amounts_option(
    "--consume",
    "-c",
    required=False,
    help="Tokens that the acquire asks for; may be repeated. Default: the largest amounts that "
    "were rejected in this hour or the last; 1 of each other limit.",
)
@click.option(
    "--exit-code", is_flag=True, help="Exit with 3 if the answer is LIMITED, with 1 if ERROR."
)
@store_options
@output_option
def explain(
    store: StoreLocation,
    entity_id: str,
    resource: str,
    amounts: dict[str, int],
    exit_code: bool,
    output: str,
) -> None:
    """Explain whether the next acquire would be admitted. Nothing is charged.

    \b
    Examples:
      zae-limiter explain key-7 gpt-4
      zae-limiter explain key-7 gpt-4 -c rpm=1 -c tpm=500
      zae-limiter explain key-7 gpt-4 --exit-code

    JSON: entity_id, resource, exists, entity_known (created, limited or used), resource_known,
    parent_id, cascade, consume, consume_source (given, rejected: the largest amounts that were
    rejected in this hour or the last, or default: 1 of each limit), resolution (each: entity_id,
    source, last_used_hour, levels (each: source, limits, wins)), answer (admitted, limited or
    error), retry_after_seconds (null: never), problem, limits (each: entity_id, resource,
    limit_name, capacity, refill_amount, refill_period_seconds, available, requested, exceeded,
    can_ever_fit, retry_after_seconds, paused_seconds (while the bucket is paused)).
    """
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter_ops.cli.explain.explanation import explain_acquire

    with store.open() as repository:
        limiter = SyncRateLimiter(repository)
        explanation = explain_acquire(limiter, entity_id, resource, amounts)
        hints = _hints(repository, explanation, output)
    if output == "json":
        print_result(output, _as_json(explanation))
    else:
        _print(explanation)
    for hint in hints:
        print_hint(output, hint)
    if exit_code and explanation.answer != "admitted":
        click.get_current_context().exit(LIMITED if explanation.answer == "limited" else FAILED)


def _hints(repository: SyncRepository, explanation: Explanation, output: str) -> list[str]:
    """Name what the store does not know, which may be a typo, and what may have been meant."""
    if output == "json":
        return []
    from zae_limiter_ops.cli.shared.lookups import similar_entities, similar_resources

    hints = []
    if not explanation.entity_known:
        entity_id = explanation.entity_id
        suggestion = did_you_mean(entity_id, similar_entities(repository, entity_id))
        hints.append(
            f"{entity_id!r} was never created, has no limits of its own and no buckets{suggestion}"
        )
    if not explanation.resource_known:
        name = explanation.resource
        suggestion = did_you_mean(name, similar_resources(repository))
        hints.append(f"resource {name!r} has no limits and no buckets{suggestion}")
    return hints


def _as_json(explanation: Explanation) -> dict[str, Any]:
    answer, entity = explanation.availability, explanation.entity
    return {
        "entity_id": explanation.entity_id,
        "resource": explanation.resource,
        "exists": entity is not None,
        "entity_known": explanation.entity_known,
        "resource_known": explanation.resource_known,
        "parent_id": entity.parent_id if entity else None,
        "cascade": entity.cascade if entity else False,
        "consume": explanation.consume,
        "consume_source": explanation.consume_source,
        "resolution": [
            {
                "entity_id": resolution.entity_id,
                "source": resolution.source,
                "last_used_hour": resolution.last_used_hour,
                "levels": [
                    {
                        "source": level.source,
                        "limits": limits_json(level.limits),
                        "wins": level.wins,
                    }
                    for level in resolution.levels
                ],
            }
            for resolution in explanation.resolutions
        ],
        "answer": explanation.answer,
        "retry_after_seconds": None if answer is None else seconds_json(answer.retry_after_seconds),
        "problem": explanation.problem,
        "limits": [] if answer is None else [status.as_dict() for status in answer.statuses],
    }


def _print(explanation: Explanation) -> None:
    asked = " ".join(f"{name}={amount:,}" for name, amount in explanation.consume.items())
    print_line(f"acquire {explanation.entity_id} on {explanation.resource}: {asked or 'no tokens'}")
    if explanation.consume_source == "rejected":
        print_line("(the largest amounts that were rejected in this hour or the last)")
    print_line("")
    print_line(f"1. Charged: {_charged(explanation)}")
    for index, resolution in enumerate(explanation.resolutions):
        step = "   " if index else "2. "
        print_line("")
        print_line(
            f"{step}Limits of {resolution.entity_id} on {explanation.resource}: "
            "the first configuration level with limits wins"
        )
        _print_levels(resolution)
    if explanation.availability is not None:
        print_line("")
        print_line("3. Buckets as they are now")
        print_table(
            ("entity", "limit", "level>", "of>", "refill>", "asked>", "fits"),
            map(_bucket_row, explanation.availability.statuses),
            indent=3,
            last_styles={"yes": "green", "NO": "red"},
        )
        last = next((resolution.last_used_hour for resolution in explanation.resolutions), None)
        when = (
            f"in the hour of {format_hour(last)}" if last else "not known; an unused bucket is full"
        )
        print_line(f"   last use by {explanation.entity_id}: {when}")
    print_line("")
    print_line(f"Answer: {_answer(explanation)}", styles=ANSWER_STYLES)


def _charged(explanation: Explanation) -> str:
    entity = explanation.entity
    if entity is None:
        return f"{explanation.entity_id} alone (never created, so it has no parent)"
    if entity.parent_id is None:
        return f"{entity.id} alone (it has no parent)"
    if not entity.cascade:
        return (
            f"{entity.id} alone (cascade is off, so its parent {entity.parent_id} is not charged)"
        )
    return f"{entity.id} and its parent {entity.parent_id} (cascade): both must have enough"


def _print_levels(resolution: Resolution) -> None:
    decided = False
    rows = []
    for level in resolution.levels:
        text = describe_limits(level.limits)
        verdict = "in force" if level.wins else "" if not level.limits or not decided else "hidden"
        decided = decided or level.wins
        rows.append((LEVELS[level.source], text, verdict))
    print_table(("level", "limits", ""), rows, indent=3, last_styles={"in force": "green"})


def _bucket_row(status: LimitStatus) -> tuple[object, ...]:
    return (
        status.entity_id,
        status.limit_name,
        f"{status.available:,}",
        f"{status.limit.capacity:,}",
        format_rate(status.limit),
        f"{status.requested:,}",
        "yes" if not status.exceeded else f"NO: {_wait(status)}",
    )


def _wait(status: LimitStatus) -> str:
    if math.isinf(status.retry_after_seconds):
        return "never"
    paused = "paused, " if status.paused_seconds else ""
    return f"{paused}in {format_duration(status.retry_after_seconds)}"


def _answer(explanation: Explanation) -> str:
    if explanation.availability is None:
        return f"ERROR, nothing is charged: {explanation.problem}"
    if explanation.availability.available:
        return "ADMITTED: every limit has enough"
    worst = explanation.violations[0]
    short = f"{worst.limit_name} of {worst.entity_id}"
    if math.isinf(worst.retry_after_seconds):
        return (
            f"LIMITED for ever: {worst.requested:,} is more than the capacity of {short} "
            f"({worst.limit.capacity:,}); ask for less, or raise its burst"
        )
    wait = format_duration(worst.retry_after_seconds)
    if worst.paused_seconds:
        left = format_duration(worst.paused_seconds)
        return (
            f"LIMITED, retry in {wait}: the bucket of {worst.entity_id} on {worst.resource} is "
            f"paused for {left} more, whatever it holds"
        )
    if worst.limit.is_concurrent:
        free, slots = max(0, worst.available), count_of(worst.limit.capacity, "slot")
        return (
            f"LIMITED, ask again in {wait}: {short} has {free:,} of {slots} free; "
            "they return when calls in flight end"
        )
    if worst.available < 0:
        return (
            f"LIMITED, retry in {wait}: {short} is in debt ({worst.available:,}), which stops "
            f"every call on {explanation.resource} until it is repaid"
        )
    return (
        f"LIMITED, retry in {wait}: {short} has {worst.available:,} of the "
        f"{worst.requested:,} asked for"
    )

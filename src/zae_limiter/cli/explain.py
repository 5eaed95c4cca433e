"""``zae-limiter explain``: why the next acquire would be answered as it would."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli.options import entity_argument, output_option, resource_argument
from zae_limiter.cli.store_options import store_options
from zae_limiter.cli.tables import described, print_table, say, show
from zae_limiter.cli.values import amounts_option
from zae_limiter.cli.words import LEVELS, duration, hour, limits_json, rate, seconds_json

if TYPE_CHECKING:
    from zae_limiter.cli.explanation import Explanation, Resolution
    from zae_limiter.cli.store import Store
    from zae_limiter.models.status import LimitStatus


@click.command()
@entity_argument
@resource_argument
@amounts_option(
    "--consume",
    "-c",
    required=False,
    help="What the acquire asks for; may be repeated. Default: 1 of each limit.",
)
@store_options
@output_option
def explain(
    store: Store, entity_id: str, resource: str, amounts: dict[str, int], output: str
) -> None:
    """Explain what the next acquire would be answered, and why. Nothing is taken.

    \b
    Examples:
      zae-limiter explain key-7 gpt-4
      zae-limiter explain key-7 gpt-4 -c rpm=1 -c tpm=500

    JSON: entity_id, resource, exists, parent_id, cascade, consume, resolution (each: entity_id,
    source, last_used_hour, levels (each: source, limits, wins)), answer (admitted, limited or
    error), retry_after_seconds (null: never), problem, limits (each: entity_id, resource,
    limit_name, capacity, refill_amount, refill_period_seconds, available, requested, exceeded,
    can_ever_fit, retry_after_seconds).
    """
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter.cli.explanation import explain as explain_acquire

    with store.open() as repository:
        found = explain_acquire(SyncRateLimiter(repository), entity_id, resource, amounts)
    if output == "json":
        show(output, _as_json(found))
    else:
        _print(found)


def _as_json(found: Explanation) -> dict[str, Any]:
    answer, entity = found.availability, found.entity
    return {
        "entity_id": found.entity_id,
        "resource": found.resource,
        "exists": entity is not None,
        "parent_id": entity.parent_id if entity else None,
        "cascade": entity.cascade if entity else False,
        "consume": found.consume,
        "resolution": [
            {
                "entity_id": each.entity_id,
                "source": each.source,
                "last_used_hour": each.last_used_hour,
                "levels": [
                    {
                        "source": level.source,
                        "limits": limits_json(level.limits),
                        "wins": level.wins,
                    }
                    for level in each.levels
                ],
            }
            for each in found.resolutions
        ],
        "answer": found.answer,
        "retry_after_seconds": None if answer is None else seconds_json(answer.retry_after_seconds),
        "problem": found.problem,
        "limits": [] if answer is None else [status.as_dict() for status in answer.statuses],
    }


def _print(found: Explanation) -> None:
    asked = " ".join(f"{name}={amount:,}" for name, amount in found.consume.items())
    say(f"acquire {found.entity_id} on {found.resource}: {asked or 'no tokens'}")
    say("")
    say(f"1. Who pays: {_who_pays(found)}")
    for index, each in enumerate(found.resolutions):
        number = "   " if index else "2. "
        say("")
        say(
            f"{number}Limits of {each.entity_id} on {found.resource}: the first level with any wins"
        )
        _print_levels(each)
    if found.availability is not None:
        say("")
        say("3. Buckets as they are now")
        print_table(
            ("entity", "limit", "level>", "of>", "refill>", "asked>", "fits"),
            map(_bucket_row, found.availability.statuses),
            indent=3,
            last_styles={"yes": "green"},
        )
        last = next((each.last_used_hour for each in found.resolutions), None)
        when = f"in the hour of {hour(last)}" if last else "not known; an unused bucket is full"
        say(f"   last use by {found.entity_id}: {when}")
    say("")
    say(f"Answer: {_answer(found)}")


def _who_pays(found: Explanation) -> str:
    entity = found.entity
    if entity is None:
        return f"{found.entity_id} alone (never created, so it has no parent)"
    if entity.parent_id is None:
        return f"{entity.id} alone (it has no parent)"
    if not entity.cascade:
        return (
            f"{entity.id} alone (cascade is off, so its parent {entity.parent_id} is not charged)"
        )
    return f"{entity.id} and its parent {entity.parent_id} (cascade): both must have room"


def _print_levels(each: Resolution) -> None:
    decided = False
    shown = []
    for level in each.levels:
        text = described(level.limits)
        verdict = "in force" if level.wins else "" if not level.limits or not decided else "hidden"
        decided = decided or level.wins
        shown.append((LEVELS[level.source], text, verdict))
    print_table(("level", "limits", ""), shown, indent=3, last_styles={"in force": "green"})


def _bucket_row(status: LimitStatus) -> tuple[object, ...]:
    return (
        status.entity_id,
        status.limit_name,
        f"{status.available:,}",
        f"{status.limit.capacity:,}",
        rate(status.limit),
        f"{status.requested:,}",
        "yes" if not status.exceeded else f"NO: {_wait(status)}",
    )


def _wait(status: LimitStatus) -> str:
    if math.isinf(status.retry_after_seconds):
        return "never"
    return f"in {duration(status.retry_after_seconds)}"


def _answer(found: Explanation) -> str:
    if found.availability is None:
        return f"ERROR, nothing is charged: {found.problem}"
    if found.availability.available:
        return "ADMITTED: every limit has enough"
    worst = found.violations[0]
    whose = f"{worst.limit_name} of {worst.entity_id}"
    if math.isinf(worst.retry_after_seconds):
        return (
            f"LIMITED for ever: {worst.requested:,} is more than the capacity of {whose} "
            f"({worst.limit.capacity:,}); ask for less, or raise its burst"
        )
    wait = duration(worst.retry_after_seconds)
    if worst.available < 0:
        return (
            f"LIMITED, retry in {wait}: {whose} is in debt ({worst.available:,}), which stops "
            f"every call on {found.resource} until it is repaid"
        )
    return (
        f"LIMITED, retry in {wait}: {whose} has {worst.available:,} of the "
        f"{worst.requested:,} asked for"
    )

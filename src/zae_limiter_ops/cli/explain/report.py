"""The explanation of an acquire, printed for people and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from zae_limiter.models.config import ConfigSource
from zae_limiter.models.window_text import describe_use
from zae_limiter_ops.cli.shared.errors import suggested
from zae_limiter_ops.cli.shared.records import print_columns
from zae_limiter_ops.cli.shared.tables import print_line
from zae_limiter_ops.views.columns import Column
from zae_limiter_ops.views.formatting import (
    LEVELS,
    count_of,
    describe_limits,
    format_amount,
    format_duration,
    format_hour,
    format_rate,
    format_time,
    plain_amount,
)
from zae_limiter_ops.views.modes import iso_text

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter.models.status import LimitStatus
    from zae_limiter_ops.views.explanation import Explanation, LevelView

ANSWER_STYLES = {"ADMITTED": "green", "LIMITED": "red", "ERROR": "red"}


def print_explanation(explanation: Explanation) -> None:
    """Print the charged entities, their limits, the buckets and the answer."""
    wanted = {(explanation.entity_id, explanation.resource): explanation.consume}
    for at, ((owner, resource), amounts) in enumerate((wanted | explanation.also).items()):
        asked = " ".join(f"{name}={_asked(amount)}" for name, amount in amounts.items())
        verb = "   and" if at else "acquire"
        print_line(f"{verb} {owner} on {resource}: {asked or 'no tokens'}")
    if explanation.consume_source == "rejected":
        print_line("(the largest amounts that were rejected in this hour or the last)")
    print_line("")
    print_line(f"1. Charged: {_charged(explanation)}")
    for index, resolution in enumerate(explanation.resolutions):
        step = "   " if index else "2. "
        print_line("")
        print_line(
            f"{step}Limits of {resolution.entity_id} on {resolution.resource}: "
            "the first configuration level with limits wins"
        )
        print_columns(LEVEL_COLUMNS, resolution.levels, indent=3, styles={"in force": "green"})
        if resolution.mode.source is not None:
            print_line(f"   mode: {resolution.mode.text}")
    if explanation.availability is not None:
        print_line("")
        print_line("3. Buckets as they are now")
        statuses = explanation.availability.statuses
        columns = SEVERAL_COLUMNS if explanation.several else BUCKET_COLUMNS
        print_columns(columns, statuses, indent=3, styles={"yes": "green", "NO": "red"})
        for status in statuses:
            if status.limit.is_quota:
                print_line(f"   of {_bucket(explanation, status)}, {describe_use(status)}")
        print_line(f"   last use by {explanation.entity_id}: {_last_use(explanation)}")
    print_line("")
    if explanation.last_limited_by is not None:
        print_line(describe_last_rejection(explanation))
    print_line(f"Answer: {_answer(explanation)}", styles=ANSWER_STYLES)


def describe_last_rejection(explanation: Explanation) -> str:
    """Say what refused the last call of the key, and when."""
    recent = explanation.recent
    assert recent is not None, "there was a rejection"
    assert recent.last_rejected_at is not None, "what refused is stored with its time"
    return (
        f"Last rejection of {explanation.entity_id} on {explanation.resource}: "
        f"{format_time(recent.last_rejected_at)} by {recent.last_limited_by} "
        "(clients report within 30 s)"
    )


LEVEL_COLUMNS: tuple[Column[LevelView], ...] = (
    Column(title="level", value=lambda level: LEVELS[level.source]),
    Column(title="limits", value=lambda level: describe_limits(level.limits)),
    Column(title="", value=lambda level: level.verdict),
)
BUCKET_COLUMNS: tuple[Column[LimitStatus], ...] = (
    Column(title="entity", value=lambda status: status.entity_id),
    Column(title="limit", value=lambda status: status.limit_name),
    Column(title="level>", value=lambda status: plain_amount(status.available)),
    Column(title="of>", value=lambda status: plain_amount(status.limit.amount)),
    Column(title="refill>", value=lambda status: format_rate(status.limit)),
    Column(title="asked>", value=lambda status: plain_amount(status.requested)),
    Column(
        title="fits",
        value=lambda status: f"NO: {_wait(status)}" if status.exceeded else "yes",
    ),
)
RESOURCE_COLUMN: Column[LimitStatus] = Column(
    title="resource", value=lambda status: status.resource
)
SEVERAL_COLUMNS = (BUCKET_COLUMNS[0], RESOURCE_COLUMN, *BUCKET_COLUMNS[1:])


def _bucket(explanation: Explanation, status: LimitStatus) -> str:
    """Return the entity of a status, with its resource if the acquire has several."""
    return f"{status.entity_id} on {status.resource}" if explanation.several else status.entity_id


def _asked(amount: int | Decimal | str) -> str:
    return amount if isinstance(amount, str) else format_amount(amount)


def _last_use(explanation: Explanation) -> str:
    last = next((resolution.last_used_hour for resolution in explanation.resolutions), None)
    return f"in the hour of {format_hour(last)}" if last else "not known; an unused bucket is full"


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


def _wait(status: LimitStatus) -> str:
    if status.is_denied:
        return "denied"
    if math.isinf(status.retry_after_seconds):
        return "never"
    paused = "paused, " if status.paused_seconds else ""
    return f"{paused}in {format_duration(status.retry_after_seconds)}"


def _answer(explanation: Explanation) -> str:
    if explanation.availability is None:
        return f"ERROR, nothing is charged: {explanation.problem}"
    if explanation.availability.available:
        modes = {each.mode for each in explanation.availability.statuses} - {"enforce"}
        if modes:
            return f"ADMITTED in mode {', '.join(sorted(modes))}, whatever the levels are"
        return f"ADMITTED: every limit has enough{_unasked(explanation)}"
    worst = explanation.violations[0]
    if worst.is_denied:
        return _denied(explanation, worst)
    short = f"{worst.limit_name} of {_bucket(explanation, worst)}"
    if math.isinf(worst.retry_after_seconds):
        size, remedy = ("amount", "amount") if worst.limit.is_quota else ("capacity", "burst")
        return (
            f"LIMITED for ever: {format_amount(worst.requested)} is more than the {size} of "
            f"{short} ({format_amount(worst.limit.amount)}); ask for less, or raise its {remedy}"
        )
    wait = format_duration(worst.retry_after_seconds)
    if worst.paused_seconds:
        left = format_duration(worst.paused_seconds)
        return (
            f"LIMITED, retry in {wait}: the bucket of {worst.entity_id} on {worst.resource} is "
            f"paused for {left} more"
        )
    if worst.limit.is_quota:
        of_bucket = f"of {_bucket(explanation, worst)}, " if explanation.several else ""
        return f"LIMITED, retry in {wait}: {of_bucket}{worst.window_text()}"
    if worst.limit.is_concurrent:
        free, slots = max(0, int(worst.available)), count_of(worst.limit.capacity, "slot")
        return (
            f"LIMITED, ask again in {wait}: {short} has {free:,} of {slots} free; "
            "they return when calls in flight end"
        )
    if worst.available < 0:
        return (
            f"LIMITED, retry in {wait}: {short} is in debt ({worst.available:,}), which stops "
            f"every call on {worst.resource} until it is repaid"
        )
    return (
        f"LIMITED, retry in {wait}: {short} has {worst.available:,} of the "
        f"{worst.requested:,} asked for"
    )


def _unasked(explanation: Explanation) -> str:
    """Return how to ask for the limit that refused the last call, if the acquire does not."""
    last = explanation.last_limited_by
    if last is None or explanation.asks_the_last_refuser:
        return ""
    also = f"--also {last.resource}"
    if last.entity_id != explanation.entity_id and not _charges(explanation, last.entity_id):
        also = f"--also-of {last.entity_id} {last.resource}"
    return (
        f", but the last call was refused by {last}, which this one does not ask for; "
        f"add {also} {_name_of(last.limit)}=AMOUNT"
    )


def _charges(explanation: Explanation, entity_id: str) -> bool:
    """Tell whether the entity is the parent, which is charged with the key on every resource."""
    return any(each.entity_id == entity_id for each in explanation.resolutions)


def _name_of(limit: str) -> str:
    """Return the name of a limit for a command; any limit may stand for a pause or a mode."""
    return "LIMIT" if " " in limit else limit


def _denied(explanation: Explanation, status: LimitStatus) -> str:
    """Return the answer for a bucket that is denied, and the command that ends that."""
    source = next(
        each.mode.source
        for each in explanation.resolutions
        if (each.entity_id, each.resource) == (status.entity_id, status.resource)
    )
    until = "for ever" if status.mode_until is None else f"until {iso_text(status.mode_until)}"
    if source is ConfigSource.RESOURCE:
        undo = suggested("resource", "set-mode", status.resource, "enforce")
    elif source is ConfigSource.ENTITY:
        undo = suggested(
            "entity", "set-mode", status.entity_id, "inherit", options=("-r", status.resource)
        )
    else:
        undo = suggested("entity", "set-mode", status.entity_id, "inherit")
    return f"LIMITED {until}: {status.entity_id} on {status.resource} is denied; to end it: {undo}"

"""Pauses, top-ups and resets of a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zae_limiter.admission.in_force import stored_units
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.bucket import MAX_PAUSE_S, check_pause
from zae_limiter_dashboard.previews import (
    ActionPlace,
    Fields,
    PageAction,
    PageChange,
    Preview,
    bucket_of,
)
from zae_limiter_ops.views.amounts import amount_words, parse_amounts
from zae_limiter_ops.views.formatting import format_amount, format_duration

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter import SyncRepository
    from zae_limiter.models.bucket import BucketState


def _seconds(fields: Fields) -> float:
    try:
        return check_pause(float(fields.get("seconds", "")))
    except ValueError as error:
        if isinstance(error, ValidationError):
            raise
        raise ValidationError(
            "seconds", fields.get("seconds"), f"must be a number from 0 to {MAX_PAUSE_S}"
        ) from None


def _preview_pause(place: ActionPlace, fields: Fields) -> Preview:
    (entity_id, resource), seconds = bucket_of(fields), _seconds(fields)
    states = place.repository.get_buckets(entity_id, resource)
    until_ms = states[0].paused_until_ms if states else None
    left_ms = 0 if until_ms is None else until_ms - place.repository.charging.clock()
    before = f"paused for {format_duration(left_ms / 1000)} more" if left_ms > 0 else "not paused"
    after = f"paused for {format_duration(seconds)}" if seconds else "not paused"
    return Preview(
        title=f"Pause {entity_id} on {resource}" if seconds else f"Lift the pause of {entity_id}",
        changes=(PageChange("bucket", before, after),),
        words=("bucket", "pause", entity_id, resource, f"{seconds:g}"),
        fields={"entity": entity_id, "resource": resource, "seconds": f"{seconds:g}"},
        note=(
            "Every call is rejected until the pause ends. A shorter pause than the present one "
            "changes nothing."
            if seconds
            else "Calls are admitted again at once."
        ),
    )


def _pause(repository: SyncRepository, fields: Fields, principal: str) -> str:
    (entity_id, resource), seconds = bucket_of(fields), _seconds(fields)
    repository.pause(entity_id, resource, seconds, principal)
    if not seconds:
        return f"The pause of {entity_id} on {resource} is lifted."
    return f"{entity_id} is paused on {resource} for {format_duration(seconds)}."


def _amounts(fields: Fields) -> dict[str, Any]:
    """Read ``tpm=500 usd=0.25``, separated by spaces, commas or lines."""
    amounts = parse_amounts(fields.get("amounts", ""))
    if not amounts:
        raise ValidationError("amounts", "", "must name at least one limit, such as tpm=5000")
    return amounts


def _preview_top_up(place: ActionPlace, fields: Fields) -> Preview:
    (entity_id, resource), amounts = bucket_of(fields), _amounts(fields)
    changes = []
    for state in place.repository.get_buckets(entity_id, resource):
        added = amounts.get(state.limit_name)
        if added is not None:
            changes.append(_level(state, _topped_up(state, added)))
    words = amount_words(amounts)
    return Preview(
        title=f"Top up {entity_id} on {resource}",
        changes=tuple(changes),
        words=("bucket", "top-up", entity_id, resource),
        options=tuple(part for word in words for part in ("-a", word)),
        fields={
            "entity": entity_id,
            "resource": resource,
            "amounts": " ".join(words),
        },
        note="Tokens are added up to the capacity, and to a quota in full until its window ends. "
        "Usage stays counted."
        if changes
        else "There is no bucket with these limits: it is full, and nothing is added.",
    )


def _topped_up(state: BucketState, added: int | Decimal) -> int:
    """Return the level after a top-up, in stored units. A quota may rise above its amount."""
    limit = state.limit
    if limit.currency is None and not isinstance(added, int):
        raise ValidationError("amounts", added, f"{limit.name} counts whole tokens, not money")
    after = state.tokens_milli + stored_units(added, limit.currency is not None)
    return after if limit.is_quota else min(state.capacity_milli, after)


def _level(state: BucketState, after: int) -> PageChange:
    """Return the change of a level, as users write amounts."""
    limit = state.limit
    unit = f" {limit.currency}" if limit.currency else ""
    before_text, after_text = (
        format_amount(limit.shown(units)) for units in (state.tokens_milli, after)
    )
    return PageChange(f"level of {limit.name}", before_text + unit, after_text + unit)


def _top_up(repository: SyncRepository, fields: Fields, principal: str) -> str:
    (entity_id, resource), amounts = bucket_of(fields), _amounts(fields)
    repository.top_up(entity_id, resource, amounts, principal)
    return f"Tokens were added to {entity_id} on {resource}."


def _preview_reset(place: ActionPlace, fields: Fields) -> Preview:
    entity_id, resource = bucket_of(fields)
    states = place.repository.get_buckets(entity_id, resource)
    return Preview(
        title=f"Reset {entity_id} on {resource}",
        changes=tuple(_level(state, state.capacity_milli) for state in states),
        words=("bucket", "reset", entity_id, resource),
        options=("--yes",),
        fields={"entity": entity_id, "resource": resource},
        note="Every limit is filled, and debts are forgiven. Usage stays counted.",
    )


def _reset(repository: SyncRepository, fields: Fields, principal: str) -> str:
    entity_id, resource = bucket_of(fields)
    repository.reset_bucket(entity_id, resource, principal)
    return f"The bucket of {entity_id} on {resource} is full."


PAUSE = PageAction("Pause", _preview_pause, _pause)
TOP_UP = PageAction("Top up", _preview_top_up, _top_up)
RESET = PageAction("Reset", _preview_reset, _reset)

"""What a write to a bucket item does about its hour.

The first write of a new hour *turns* the item: what it has counted becomes the finished hour, and
the counts begin again, in the same conditional write as the charge. The right-hand sides of a SET
see the item before the update, so a charge of the same write counts for the new hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from zae_limiter.admission.tally import NO_TALLY, Tally
from zae_limiter.dynamodb.items import bucket as stored
from zae_limiter.dynamodb.items.attributes import s
from zae_limiter.dynamodb.items.hours import (
    ADMITTED,
    ASKED,
    BEGAN,
    CHILDREN,
    FINISHED,
    FINISHED_ADMITTED,
    FINISHED_ASKED,
    FINISHED_CHILDREN,
    FINISHED_NET,
    FINISHED_OF_CHILDREN,
    FINISHED_REJECTED,
    FINISHED_WAITED,
    HOUR,
    OF_CHILDREN,
    ORIGIN,
    REJECTED,
    WAITED,
)
from zae_limiter.dynamodb.items.update_expression import UpdateExpression


class HourForm(IntEnum):  # of integers: the hash of a plain Enum is computed in Python
    """How a write treats the hour that runs in the item.

    COUNT counts for it, whichever it is. LATE does, too, but requires that it is not over: another
    client has probably turned it. TURN ends it and begins the next one. BEGIN starts to count in an
    item of the schema without hours.
    """

    COUNT = 1
    LATE = 2
    TURN = 3
    BEGIN = 4


class HourCounts(NamedTuple):
    """What a write counts in the hour of its stamp, and in which form.

    ``through_milli`` is the part that came through children, by stored name. ``stored`` is a
    finished hour that has been stored, so that the turn may overwrite it. ``origin`` is that of an
    item that begins to count. ``asked`` is the text of the largest rejected amounts that the write
    leaves; empty if it does not change them.
    """

    form: HourForm
    hour: int
    admitted: int = 0
    tally: Tally = NO_TALLY
    through_milli: Mapping[str, int] = {}
    stored: int | None = None
    origin: str = ""
    asked: str = ""


def count(
    update: UpdateExpression,
    bucket: stored.StoredBucket,
    counts: HourCounts,
    *,
    structural: bool = False,
) -> None:
    """Add the clauses of ``counts``; ``values_of`` has their values in the same order.

    A ``structural`` write sets the parameters of all limits itself.
    """
    if counts.form is HourForm.TURN:
        _turn(update, bucket, counts)
    elif counts.form is HourForm.BEGIN:
        slots = stored.limit_indexes(bucket.image.limits)
        _begin(update, slots, counts)
        if not structural:
            _set_slots(update, bucket, slots)
    else:
        assert bucket.hours is not None
        count_in_slots(update, counts, bucket.hours.slots)
        if counts.form is HourForm.LATE:
            require_hour(update, counts.hour)


def count_in_slots(update: UpdateExpression, counts: HourCounts, slots: Mapping[str, int]) -> None:
    """Add to the counts of the hour that runs in the item."""
    if counts.admitted:
        update.add(ADMITTED, counts.admitted)
    for attribute, number in _tally_numbers(counts.tally):
        if number:
            update.add(attribute, number)
    for name, amount in counts.through_milli.items():
        update.add(f"{CHILDREN}{slots[name]}", amount)
    if counts.asked:
        update.set(ASKED, s(counts.asked))


def _tally_numbers(tally: Tally) -> tuple[tuple[str, int], ...]:
    rejected, through_children, waited, _ = tally
    return (REJECTED, rejected), (OF_CHILDREN, through_children), (WAITED, waited)


def require_hour(update: UpdateExpression, hour: int) -> None:
    """Require that the item's hour is not over at the stamp."""
    update.require(f"{update.name(HOUR)} >= {update.number(hour)}")


def _turn(update: UpdateExpression, bucket: stored.StoredBucket, counts: HourCounts) -> None:
    hours = bucket.hours
    assert hours is not None
    zero = update.number(0)
    for name, slot in hours.slots.items():
        consumed, began = update.name(stored.CONSUMED + name), f"{BEGAN}{slot}"
        began_or_zero = f"if_not_exists({update.name(began)}, {zero})"
        update.set_to(f"{FINISHED_NET}{slot}", f"{consumed} - {began_or_zero}")
        update.set_to(began, consumed)
        children = f"{CHILDREN}{slot}"
        if hours.has_children:
            update.set_to(
                f"{FINISHED_CHILDREN}{slot}", f"if_not_exists({update.name(children)}, {zero})"
            )
            update.set_number(children, counts.through_milli.get(name, 0))
        else:  # a child's charge that was not seen would be lost
            update.require(f"attribute_not_exists({update.name(children)})")
            if name in counts.through_milli:
                update.set_number(children, counts.through_milli[name])
    update.set_to(FINISHED_ADMITTED, f"if_not_exists({update.name(ADMITTED)}, {zero})")
    update.set_number(ADMITTED, counts.admitted)
    _turn_tally(update, counts, zero)
    update.set_to(FINISHED, update.name(HOUR))
    hour = update.number(counts.hour)
    update.set_to(HOUR, hour)
    update.require_equal(ORIGIN, s(hours.origin))
    update.require(f"{update.name(HOUR)} < {hour}")
    require_stored(update, counts.stored)


def _turn_tally(update: UpdateExpression, counts: HourCounts, zero: str) -> None:
    """Turn the counts of acquires that were rejected or have waited, most of them absent."""
    tally = counts.tally
    update.set_to(FINISHED_REJECTED, f"if_not_exists({update.name(REJECTED)}, {zero})")
    update.set_number(REJECTED, tally.rejected)
    for finished, running, number in (
        (FINISHED_OF_CHILDREN, OF_CHILDREN, tally.through_children),
        (FINISHED_WAITED, WAITED, tally.waited),
    ):
        update.set_to(finished, f"if_not_exists({update.name(running)}, {zero})")
        if number:
            update.set_number(running, number)
        else:
            update.remove(running)
    none = update.value(s(""))
    update.set_to(FINISHED_ASKED, f"if_not_exists({update.name(ASKED)}, {none})")
    if counts.asked:
        update.set(ASKED, s(counts.asked))
    else:
        update.remove(ASKED)


def require_stored(update: UpdateExpression, hour: int | None) -> None:
    """Require that the item holds no finished hour, except one that has been stored."""
    finished = update.name(FINISHED)
    absent = f"attribute_not_exists({finished})"
    if hour is None:
        update.require(absent)
    else:
        update.require(f"({absent} OR {finished} = {update.number(hour)})")


def _begin(update: UpdateExpression, slots: Mapping[str, int], counts: HourCounts) -> None:
    """Count from now on; what was used before is in no hour."""
    update.set(ORIGIN, s(counts.origin))
    update.set_number(HOUR, counts.hour)
    update.set_number(ADMITTED, counts.admitted)
    for attribute, number in _tally_numbers(counts.tally):
        update.set_number(attribute, number)
    if counts.asked:
        update.set(ASKED, s(counts.asked))
    for name, slot in slots.items():
        update.set_to(f"{BEGAN}{slot}", update.name(stored.CONSUMED + name))
        if name in counts.through_milli:
            update.set_number(f"{CHILDREN}{slot}", counts.through_milli[name])
    update.require(f"attribute_not_exists({update.name(HOUR)})")


def _set_slots(
    update: UpdateExpression, bucket: stored.StoredBucket, slots: Mapping[str, int]
) -> None:
    rates = bucket.whole_rates
    for name, slot in slots.items():
        update.set(stored.PARAMETERS + name, s(stored.pack(rates[name], slot)))
    digest = stored.digest_of(rates, slots, bucket.image.paused_until_ms)
    update.set(stored.DIGEST, s(digest))


def kind_of(bucket: stored.StoredBucket, counts: HourCounts) -> tuple[object, ...] | None:
    """Return what decides the text of the clauses besides their values; None if that varies."""
    form, _, admitted, tally, through_milli, finished, _, asked = counts
    if form is HourForm.BEGIN:
        return None
    assert bucket.hours is not None
    slots = bucket.hours.slots
    rejected, of_children, waited, _ = tally
    counted = (rejected == 0, of_children == 0, waited == 0, not asked)
    if form is HourForm.TURN:
        children = (bucket.hours.has_children, *through_milli)
        return (form, finished is None, tuple(slots.items()), children, counted)
    return (form, admitted == 0, counted, *((name, slots[name]) for name in through_milli))


def values_of(bucket: stored.StoredBucket, counts: HourCounts) -> list[object]:
    """Return the values of the clauses that ``count`` adds, in the order of their placeholders."""
    form, hour, admitted, tally, through_milli, finished, _, asked = counts
    rejected, of_children, waited, _ = tally
    if form is not HourForm.TURN:
        values: list[object] = [each for each in (admitted, rejected, of_children, waited) if each]
        values += through_milli.values()
        if asked:
            values.append(asked)
        return [*values, hour] if form is HourForm.LATE else values
    hours = bucket.hours
    assert hours is not None
    values = [0]
    for name in hours.slots:
        if hours.has_children or name in through_milli:
            values.append(through_milli.get(name, 0))
    values += (admitted, rejected, *(each for each in (of_children, waited) if each))
    values += ("", asked, hour, hours.origin) if asked else ("", hour, hours.origin)
    return values if finished is None else [*values, finished]


def free_slot(update: UpdateExpression, slot: int, heir: int, *, has_children: bool) -> None:
    """Move what came through children in a slot to that of its heir, and remove its hour."""
    children = f"{CHILDREN}{slot}"
    if has_children:
        zero, of_heir = update.number(0), f"{CHILDREN}{heir}"
        both = [f"if_not_exists({update.name(each)}, {zero})" for each in (of_heir, children)]
        update.set_to(of_heir, " + ".join(both))
    else:  # a child's charge that was not seen would be lost
        update.require(f"attribute_not_exists({update.name(children)})")
    update.remove(f"{BEGAN}{slot}")
    update.remove(children)

"""The clauses of a write to a bucket item that count for its hour.

The first write of a new hour *turns* the item: its counts become the finished hour, and new counts
begin, in the same conditional write as the charge. The right-hand sides of a SET see the item
before the update, so a charge of the same write counts for the new hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored.attributes import s
from zae_limiter.items.stored.update_expression import UpdateExpression
from zae_limiter.items.stored.usage.hours import (
    ADMITTED,
    BEGAN,
    CHILDREN,
    FINISHED,
    FINISHED_ADMITTED,
    FINISHED_CHILDREN,
    FINISHED_NET,
    FINISHED_REJECTIONS,
    FINISHED_TALLY,
    HOUR,
    ORIGIN,
    REJECTED,
    REJECTIONS,
    RUNNING_TALLY,
    counts_of,
)


class HourForm(IntEnum):
    """The way in which a write treats the running hour of the item.

    COUNT counts for the running hour, whichever it is. LATE: like COUNT, if the hour was already
    turned, probably by another client. TURN ends the running hour and begins the next one.
    """

    COUNT = 1
    LATE = 2
    TURN = 3


class HourCounts(NamedTuple):
    """What a write adds to the hour of its stamp besides its moves, and in which form.

    What has come through children is by stored name, since the item counts it for each limit.
    """

    form: HourForm
    added: HourUsage
    stored: int | None = None  # a finished hour that has been stored: the turn may overwrite it
    origin: str = ""  # of an item that the write creates
    rejections: str = ""  # the new text about rejections; empty if the write does not change it


def count(update: UpdateExpression, bucket: stored.StoredBucket, counts: HourCounts) -> None:
    """Add the clauses of ``counts``; ``values_of`` has their values in the same order."""
    if counts.form is HourForm.TURN:
        _turn(update, bucket, counts)
    else:
        count_in_hour(update, counts, bucket.hours.indexes)
        if counts.form is HourForm.LATE:
            require_hour(update, counts.added.hour)


def count_in_hour(update: UpdateExpression, counts: HourCounts, indexes: Mapping[str, int]) -> None:
    """Add to the counts of the hour that runs in the item."""
    _, _, admitted, through_children, tally = counts.added
    if admitted:
        update.add(ADMITTED, admitted)
    for attribute, number in zip(RUNNING_TALLY, counts_of(tally), strict=True):
        if number:
            update.add(attribute, number)
    for name, amount in through_children.items():
        update.add(f"{CHILDREN}{indexes[name]}", amount)
    if counts.rejections:
        update.set(REJECTIONS, s(counts.rejections))


def require_hour(update: UpdateExpression, hour: int) -> None:
    """Require that the item's hour is not over at the stamp."""
    update.require(f"{update.name(HOUR)} >= {update.number(hour)}")


def _turn(update: UpdateExpression, bucket: stored.StoredBucket, counts: HourCounts) -> None:
    hours, through_children = bucket.hours, counts.added.through_children
    zero = update.number(0)
    for name, index in hours.indexes.items():
        consumed, began = update.name(stored.CONSUMED + name), f"{BEGAN}{index}"
        began_or_zero = f"if_not_exists({update.name(began)}, {zero})"
        update.set_to(f"{FINISHED_NET}{index}", f"{consumed} - {began_or_zero}")
        update.set_to(began, consumed)
        children = f"{CHILDREN}{index}"
        if hours.has_children:
            update.set_to(
                f"{FINISHED_CHILDREN}{index}", f"if_not_exists({update.name(children)}, {zero})"
            )
            update.set_number(children, through_children.get(name, 0))
        else:  # otherwise an unseen charge of a child would be lost
            update.require(f"attribute_not_exists({update.name(children)})")
            if name in through_children:
                update.set_number(children, through_children[name])
    update.set_to(FINISHED_ADMITTED, f"if_not_exists({update.name(ADMITTED)}, {zero})")
    update.set_number(ADMITTED, counts.added.admitted)
    _turn_tally(update, counts, zero)
    update.set_to(FINISHED, update.name(HOUR))
    hour = update.number(counts.added.hour)
    update.set_to(HOUR, hour)
    update.require_equal(ORIGIN, s(hours.origin))
    update.require(f"{update.name(HOUR)} < {hour}")
    require_stored(update, counts.stored)


def _turn_tally(update: UpdateExpression, counts: HourCounts, zero: str) -> None:
    """Turn the counts of rejected, shadowed and waiting acquires, most of which are absent."""
    numbers = counts_of(counts.added.tally)
    for finished, running, number in zip(FINISHED_TALLY, RUNNING_TALLY, numbers, strict=True):
        update.set_to(finished, f"if_not_exists({update.name(running)}, {zero})")
        if number or running == REJECTED:
            update.set_number(running, number)
        else:
            update.remove(running)
    none = update.value(s(""))
    update.set_to(FINISHED_REJECTIONS, f"if_not_exists({update.name(REJECTIONS)}, {none})")
    if counts.rejections:
        update.set(REJECTIONS, s(counts.rejections))
    else:
        update.remove(REJECTIONS)


def require_stored(update: UpdateExpression, hour: int | None) -> None:
    """Require that the item holds no finished hour, except one that has been stored."""
    finished = update.name(FINISHED)
    absent = f"attribute_not_exists({finished})"
    if hour is None:
        update.require(absent)
    else:
        update.require(f"({absent} OR {finished} = {update.number(hour)})")


def kind_of(bucket: stored.StoredBucket, counts: HourCounts) -> tuple[object, ...]:
    """Return everything that decides the text of the clauses, besides their values."""
    form, (_, _, admitted, through_milli, tally), finished, _, rejections = counts
    indexes = bucket.hours.indexes
    counted = (*[number == 0 for number in counts_of(tally)], not rejections)
    if form is HourForm.TURN:
        children = (bucket.hours.has_children, *through_milli)
        return (form, finished is None, tuple(indexes.items()), children, counted)
    return (form, admitted == 0, counted, *((name, indexes[name]) for name in through_milli))


def values_of(bucket: stored.StoredBucket, counts: HourCounts) -> list[object]:
    """Return the values of the clauses that ``count`` adds, in the order of their placeholders."""
    form, (hour, _, admitted, through_milli, tally), finished, _, rejections = counts
    rejected, *others = counts_of(tally)
    rejections = encode_basestring_ascii(rejections)[1:-1]  # it goes between quotes of JSON
    if form is not HourForm.TURN:
        values: list[object] = [each for each in (admitted, rejected, *others) if each]
        values += through_milli.values()
        if rejections:
            values.append(rejections)
        return [*values, hour] if form is HourForm.LATE else values
    hours = bucket.hours
    values = [0]
    for name in hours.indexes:
        if hours.has_children or name in through_milli:
            values.append(through_milli.get(name, 0))
    values += (admitted, rejected, *(each for each in others if each))
    values += ("", rejections, hour, hours.origin) if rejections else ("", hour, hours.origin)
    return values if finished is None else [*values, finished]


def free_index(
    update: UpdateExpression, index: int, heir: int | None, *, has_children: bool
) -> None:
    """Move the counts of children from an index to that of its heir, and remove its hour.

    Without an heir the children must have counted nothing.
    """
    children = f"{CHILDREN}{index}"
    if has_children and heir is None:
        name = update.name(children)
        update.require(f"(attribute_not_exists({name}) OR {name} = {update.number(0)})")
    elif has_children:
        zero, of_heir = update.number(0), f"{CHILDREN}{heir}"
        both = [f"if_not_exists({update.name(each)}, {zero})" for each in (of_heir, children)]
        update.set_to(of_heir, " + ".join(both))
    else:  # otherwise an unseen charge of a child would be lost
        update.require(f"attribute_not_exists({update.name(children)})")
    update.remove(f"{BEGAN}{index}")
    update.remove(children)

"""The clauses of a write to a bucket item that count for its hour.

The first write of a new hour *turns* the item: its counts become the finished hour, and new counts
begin, in the same conditional write as the charge. The right-hand sides of a SET see the item
before the update, so a charge of the same write counts for the new hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.stored import bucket as stored
from zae_limiter.items.stored.update import ABSENT, EQUAL, LESS_THAN, SET, ItemUpdate
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


def count(update: ItemUpdate, bucket: stored.StoredBucket, counts: HourCounts) -> None:
    """Add the clauses of ``counts``."""
    if counts.form is HourForm.TURN:
        _turn(update, bucket, counts)
    else:
        count_in_hour(update, counts, bucket.hours.indexes)
        if counts.form is HourForm.LATE:
            require_hour(update, counts.added.hour)


def count_in_hour(update: ItemUpdate, counts: HourCounts, indexes: Mapping[str, int]) -> None:
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
        update.set(REJECTIONS, counts.rejections)


def require_hour(update: ItemUpdate, hour: int) -> None:
    """Require that the item's hour is not over at the stamp."""
    update.at_least(HOUR, hour)


def _turn(update: ItemUpdate, bucket: stored.StoredBucket, counts: HourCounts) -> None:
    hours, through_children = bucket.hours, counts.added.through_children
    zero = update.give(0)
    for name, index in hours.indexes.items():
        consumed, began = stored.CONSUMED + name, f"{BEGAN}{index}"
        update.subtract(f"{FINISHED_NET}{index}", consumed, began, zero)
        update.copy(began, consumed)
        children = f"{CHILDREN}{index}"
        if hours.has_children:
            update.copy(f"{FINISHED_CHILDREN}{index}", children, zero)
            update.set(children, through_children.get(name, 0))
        else:  # otherwise an unseen charge of a child would be lost
            update.absent(children)
            if name in through_children:
                update.set(children, through_children[name])
    update.copy(FINISHED_ADMITTED, ADMITTED, zero)
    update.set(ADMITTED, counts.added.admitted)
    _turn_tally(update, counts, zero)
    update.copy(FINISHED, HOUR)
    hour = update.give(counts.added.hour)
    update.clauses.append((SET, HOUR, hour))
    update.equal(ORIGIN, hours.origin)
    update.clauses.append((LESS_THAN, HOUR, hour))
    require_stored(update, counts.stored)


def _turn_tally(update: ItemUpdate, counts: HourCounts, zero: int) -> None:
    """Turn the counts of rejected, shadowed and waiting acquires, most of which are absent."""
    numbers = counts_of(counts.added.tally)
    for finished, running, number in zip(FINISHED_TALLY, RUNNING_TALLY, numbers, strict=True):
        update.copy(finished, running, zero)
        if number or running == REJECTED:
            update.set(running, number)
        else:
            update.remove(running)
    update.copy(FINISHED_REJECTIONS, REJECTIONS, update.give(""))
    if counts.rejections:
        update.set(REJECTIONS, counts.rejections)
    else:
        update.remove(REJECTIONS)


def require_stored(update: ItemUpdate, hour: int | None) -> None:
    """Require that the item holds no finished hour, except one that has been stored."""
    if hour is None:
        update.absent(FINISHED)
    else:
        update.any_of([(ABSENT, FINISHED)], [update.term(EQUAL, FINISHED, hour)])


def free_index(update: ItemUpdate, index: int, heir: int | None, *, has_children: bool) -> None:
    """Move the counts of children from an index to that of its heir, and remove its hour.

    Without an heir the children must have counted nothing.
    """
    children = f"{CHILDREN}{index}"
    if has_children and heir is None:
        update.any_of([(ABSENT, children)], [update.term(EQUAL, children, 0)])
    elif has_children:
        of_heir = f"{CHILDREN}{heir}"
        update.sum(of_heir, of_heir, children, update.give(0))
    else:  # otherwise an unseen charge of a child would be lost
        update.absent(children)
    update.remove(f"{BEGAN}{index}")
    update.remove(children)

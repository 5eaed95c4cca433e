"""In which form a write counts for the hour of its stamp: whether it turns the bucket's hour."""

from __future__ import annotations

from math import log
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import HourUsage
from zae_limiter.items.buckets.cache import KnownBucket
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.usage.clauses import HourCounts, HourForm
from zae_limiter.items.stored.usage.day_row import day_of
from zae_limiter.items.stored.usage.hours import (
    TURN_MARK,
    ItemHours,
    decode_rejections,
    encode_rejections,
)

# How many writes of other clients since the hour began make it likely that they have turned it: the
# chance of no write is e to the minus of that. A wrong guess costs one refused write either way.
PROBABLY_TURNED = log(2)
# How long the write that turns an hour is on its way, the store before it included: about what that
# takes within a region. Writes that others began later do not show yet.
TURN_TAKES_MS = 20
# After so long an aggregator has stored and cleared a finished hour: it collects for seconds.
CLEARED_AFTER_MS = 60_000


class BegunHour(NamedTuple):
    """An hour that a write begins in a bucket item.

    The first hour of a day (of the item, in UTC) is announced.
    """

    origin: str
    hour: int
    is_first_of_day: bool = True


class Turn(NamedTuple):
    """What a write that turns an hour leaves and needs besides its clauses.

    ``store_first`` has a finished hour that the write drops from the item, so it must be stored
    before the write is sent. ``begins_hour`` is the hour that the write begins.
    """

    write_id: str
    store_first: ItemHours | None = None
    begins_hour: BegunHour | None = None


def is_over(bucket: StoredBucket, now_ms: int, usage_ms: int) -> bool:
    """Tell whether the hour that was seen in the item is over; never if no usage is kept."""
    return bool(usage_ms) and now_ms // HOUR_MS > bucket.hours.hour


def hour_counts(
    known: KnownBucket,
    bucket: StoredBucket,
    now_ms: int,
    added: HourUsage,
    *,
    usage_ms: int,
    is_turning: bool = False,
    is_aggregated: bool = False,
) -> HourCounts:
    """Decide in which form a write adds to the hour of its stamp, from the bucket as it is known.

    A bucket that was read just now is taken literally. ``is_turning`` says that another write of
    this client that turns the hour is under way. ``is_aggregated`` says that an aggregator stores
    finished hours, so a bucket that was seen a while ago has none any more.
    """
    if not is_over(bucket, now_ms, usage_ms):
        return counts_of_running_hour(bucket, added)
    hours, text = bucket.hours, encode_rejections(added.tally, bucket.hours.indexes)
    since_ms = now_ms - max(added.hour * HOUR_MS, known.at_ms)
    turned_by_others = known.others_per_s * (since_ms - TURN_TAKES_MS) / 1000 > PROBABLY_TURNED
    if not known.is_fresh and (is_turning or turned_by_others):
        return HourCounts(HourForm.LATE, added, rejections=text)
    is_cleared = is_aggregated and now_ms - known.at_ms > CLEARED_AFTER_MS and not known.is_fresh
    finished = None if hours.finished is None or is_cleared else hours.finished.hour
    return HourCounts(HourForm.TURN, added, finished, rejections=text)


def counts_of_running_hour(bucket: StoredBucket, added: HourUsage) -> HourCounts:
    """Count for the hour that runs in the item. Details are written if they change."""
    more, text = added.tally, ""
    if more.asked or more.refusals is not None:
        indexes = bucket.hours.indexes
        before = decode_rejections(bucket.rejections, indexes)
        after = before.plus(more)
        if (after.asked, after.refusals) != (before.asked, before.refusals):
            text = encode_rejections(after, indexes)
    return HourCounts(HourForm.COUNT, added, rejections=text)


def turn_of(bucket: StoredBucket, counts: HourCounts, write_id: str) -> Turn:
    """Return what the write needs and leaves if it turns an hour; else just its id."""
    if counts.form is HourForm.TURN:
        before, hour = bucket.hours, counts.added.hour
        begins_hour = BegunHour(before.origin, hour, day_of(hour) != day_of(before.hour))
        store_first = None if counts.stored is None else before
        return Turn(TURN_MARK + write_id, store_first, begins_hour)
    return Turn(write_id)

"""Storing noted tallies: with a write to their bucket, or for buckets that nobody writes to."""

from __future__ import annotations

from zae_limiter.admission.image import HOUR_MS, BucketImage
from zae_limiter.admission.tally import Tally
from zae_limiter.admission.usage import HourUsage, roll
from zae_limiter.embedded.tables import Tables
from zae_limiter.tallies import BucketKey, NotedTally

BATCH = 200  # buckets of one transaction: a few milliseconds


def with_noted(
    tables: Tables, bucket: BucketKey, image: BucketImage, noted: NotedTally
) -> BucketImage:
    """Return the bucket with the noted counts of its hour; store those of other hours."""
    for hour, tally in noted.by_hour.items():
        if hour == image.hour:
            image = image._replace(tally=image.tally.plus(tally))
        else:
            _add_to_row(tables, bucket, hour, tally)
    return image


def store_noted(tables: Tables, noted: dict[BucketKey, NotedTally]) -> None:
    """Store counts of buckets that this client has not written to since.

    Counts of a bucket that does not exist become a row of usage: the bucket may never have been
    created, or may have been deleted.
    """
    for bucket, of_bucket in noted.items():
        namespace_id = bucket[0]
        if tables.is_purging(namespace_id) or tables.get_namespace(namespace_id) is None:
            continue
        for hour, tally in of_bucket.by_hour.items():
            _store(tables, bucket, hour, tally)


def _store(tables: Tables, bucket: BucketKey, hour: int, tally: Tally) -> None:
    image = tables.get_bucket(*bucket)
    if image is None or hour < image.hour:
        _add_to_row(tables, bucket, hour, tally)
        return
    rolled, closed = roll(image, hour * HOUR_MS)
    if closed is not None:
        tables.add_usage(*bucket, closed)
    tables.put_bucket(*bucket, rolled._replace(tally=rolled.tally.plus(tally)))


def _add_to_row(tables: Tables, bucket: BucketKey, hour: int, tally: Tally) -> None:
    tables.add_usage(*bucket, HourUsage(hour, tally=tally))

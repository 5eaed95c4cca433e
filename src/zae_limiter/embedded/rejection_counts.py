"""Counting rejected acquires without writing for them.

A rejected acquire only reads. This client notes it, and stores the count with its next write to the
bucket, in the course of housekeeping, or when it is closed. So the count is approximate: what a
process that dies has noted, and what a failed transaction took along, is missing.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from zae_limiter.admission.image import HOUR_MS, BucketImage
from zae_limiter.admission.request import ChargeRequest, Rejection
from zae_limiter.admission.usage import WindowUsage, roll
from zae_limiter.concurrency.locks import SignalSafeLock, renew_after_fork
from zae_limiter.embedded.tables import Tables

BATCH = 200  # buckets of one transaction: a few milliseconds


class RejectionCount(NamedTuple):
    """Acquires that one bucket rejected in one hour."""

    namespace_id: str
    entity_id: str
    resource: str
    hour: int
    calls: int


class NotedRejections:
    """What this client has rejected and not stored yet, by bucket and hour.

    Housekeeping stores more of it than can be added meanwhile, so it stays small.
    """

    def __init__(self) -> None:
        # Charges look whether it is empty, without the lock.
        self.by_bucket: dict[tuple[str, str, str], dict[int, int]] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self.by_bucket = {}  # the parent stores them

    def note(self, namespace_id: str, request: ChargeRequest, rejection: Rejection) -> None:
        """Count a rejected acquire for each bucket that held too few tokens."""
        hour = request.now_ms // HOUR_MS
        exceeded = {(each.entity_id, each.resource) for each in rejection.statuses if each.exceeded}
        with self._lock:
            for bucket in exceeded:
                hours = self.by_bucket.setdefault((namespace_id, *bucket), {})
                hours[hour] = hours.get(hour, 0) + 1

    def take(self, namespace_id: str, entity_id: str, resource: str) -> list[RejectionCount]:
        """Remove and return what was noted for one bucket."""
        key = (namespace_id, entity_id, resource)
        with self._lock:
            hours = self.by_bucket.pop(key, {})
        return [RejectionCount(*key, hour, calls) for hour, calls in hours.items()]

    def take_batch(self) -> list[RejectionCount]:
        """Remove and return what was noted first, for a batch of buckets."""
        with self._lock:
            keys = list(islice(self.by_bucket, BATCH))
            counts = [self.take(*key) for key in keys]
        return [count for of_bucket in counts for count in of_bucket]


def with_rejections(
    tables: Tables, image: BucketImage, rejected: list[RejectionCount]
) -> BucketImage:
    """Return the bucket with the rejections of its window; store those of other hours."""
    for each in rejected:
        if each.hour == image.window_hour:
            image = image._replace(rejected=image.rejected + each.calls)
        else:
            _add_to_row(tables, each)
    return image


def store_rejections(tables: Tables, rejected: list[RejectionCount]) -> None:
    """Store counts of buckets that this client has not written to since."""
    for each in rejected:
        namespace_id, entity_id, resource, hour, calls = each
        if tables.is_purging(namespace_id) or tables.get_namespace(namespace_id) is None:
            continue
        image = tables.get_bucket(namespace_id, entity_id, resource)
        if image is None or hour < image.window_hour:
            _add_to_row(tables, each)
            continue
        rolled, closed = roll(image, hour * HOUR_MS)
        if closed is not None:
            tables.add_usage(namespace_id, entity_id, resource, closed)
        rejected_image = rolled._replace(rejected=rolled.rejected + calls)
        tables.put_bucket(namespace_id, entity_id, resource, rejected_image)


def _add_to_row(tables: Tables, rejected: RejectionCount) -> None:
    namespace_id, entity_id, resource, hour, calls = rejected
    usage = WindowUsage(hour, {}, 0, rejected=calls)
    tables.add_usage(namespace_id, entity_id, resource, usage)

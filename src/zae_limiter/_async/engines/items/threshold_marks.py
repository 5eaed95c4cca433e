"""Marking the thresholds of quotas, in the background, when an answer shows that they are reached.

A mark is one conditional write: the threshold is still reached in its window, and nobody has marked
it before. The client whose write succeeds tells its user, so each threshold is raised once. A quota
that has rejected an acquire is marked in the same way.
"""

from __future__ import annotations

import time
from functools import partial

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter.admission.image import LimitState
from zae_limiter.admission.thresholds import (
    Mark,
    OnExhausted,
    OnThreshold,
    RejectingQuota,
    crossing,
    due_mark,
    exhausted_mark,
    exhaustion,
)
from zae_limiter.clock import Clock, Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.stored import bucket as bucket_item
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.bucket import StoredBucket
from zae_limiter.items.stored.bucket_updates import mark_write
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.store_errors import ConditionFailed, NoAnswer, ServerFault

ATTEMPTS = 3  # a refused mark is due again if the bucket has other limits or another window
RETRY_AFTER_S = 0.25  # after a failure; acquires need the throughput of the item, too

logger = quiet_logger(__name__)


class ThresholdMarks:
    """Marks thresholds of buckets as they are in the cache, so that looking makes no call.

    The first shard of a bucket has all of a quota, and its marks.
    """

    def __init__(self, table: TableContext, cache: BucketCache) -> None:
        self._store = table.store
        self._later = table.later
        self._cache = cache
        self._retry_at_s = 0.0

    def look(self, bucket_id: BucketId, on_threshold: OnThreshold, clock: Clock) -> None:
        """Mark the thresholds soon that a bucket has reached, and tell of them."""
        if self._due(bucket_id) is not None and time.monotonic() >= self._retry_at_s:
            mark_all = partial(self._mark_all, bucket_id, on_threshold, clock)
            self._later.add(("thresholds", bucket_id), mark_all)

    def look_at_exhausted(
        self, namespace_id: str, rejected: RejectingQuota, on_exhausted: OnExhausted, clock: Clock
    ) -> None:
        """Mark a quota soon that has rejected an acquire, and tell of it."""
        bucket_id = BucketId(namespace_id, rejected.entity_id, rejected.resource)
        now_ms = clock()
        is_due = self._due_exhausted(bucket_id, rejected, now_ms) is not None
        if is_due and time.monotonic() >= self._retry_at_s:
            mark = partial(self._mark_exhausted, bucket_id, rejected, on_exhausted, clock)
            self._later.add(("exhausted", bucket_id, rejected.key), mark)

    def _due_exhausted(
        self, bucket_id: BucketId, rejected: RejectingQuota, now_ms: int
    ) -> tuple[StoredBucket, Mark] | None:
        entry = self._cache.get(bucket_id.shard(0))
        mark = None if entry is None else exhausted_mark(rejected, entry.bucket.image, now_ms)
        return None if entry is None or mark is None else (entry.bucket, mark)

    async def _mark_exhausted(
        self,
        bucket_id: BucketId,
        rejected: RejectingQuota,
        on_exhausted: OnExhausted,
        clock: Clock,
        deadline: Deadline,
    ) -> None:
        """Write the mark as long as it is due. After a failure a later rejection begins again."""
        now_ms = clock()
        try:
            for _ in range(ATTEMPTS):
                due = self._due_exhausted(bucket_id, rejected, now_ms)
                if due is None:
                    return
                state = await self._mark(bucket_id, *due, now_ms, deadline)
                if state is not None:
                    on_exhausted(exhaustion(rejected, due[1], state, now_ms))
                    return
        except ZAELimiterError as error:
            self._retry_at_s = time.monotonic() + RETRY_AFTER_S
            self._log_failure("an exhausted quota", "nobody is told", bucket_id, error)

    def _due(self, bucket_id: BucketId) -> tuple[StoredBucket, Mark] | None:
        entry = self._cache.get(bucket_id.shard(0))
        mark = None if entry is None else due_mark(entry.bucket.image)
        return None if entry is None or mark is None else (entry.bucket, mark)

    async def _mark_all(
        self, bucket_id: BucketId, on_threshold: OnThreshold, clock: Clock, deadline: Deadline
    ) -> None:
        """Mark one threshold after the other. After a failure a later answer begins again."""
        try:
            while (due := self._due(bucket_id)) is not None:
                now_ms, mark = clock(), due[1]
                state = await self._mark(bucket_id, *due, now_ms, deadline)
                if state is None:
                    return
                entity_id, resource = bucket_id.entity_id, bucket_id.resource
                on_threshold(crossing(entity_id, resource, mark, state, now_ms))
        except ZAELimiterError as error:
            self._retry_at_s = time.monotonic() + RETRY_AFTER_S
            shown = "only zae-limiter watch shows it"
            self._log_failure("a threshold", shown, bucket_id, error)

    async def _mark(
        self, bucket_id: BucketId, bucket: StoredBucket, mark: Mark, now_ms: int, deadline: Deadline
    ) -> LimitState | None:
        """Write one mark, and return the quota with it.

        None: the threshold is not reached any more, or another client has marked it.
        """
        shard_id = bucket_id.shard(0)
        update = mark_write(keys.bucket(*shard_id), bucket, mark)
        try:
            item = await self._store.update(update, deadline)
        except ConditionFailed as refused:
            self._cache.store_authoritative(shard_id, refused.item, now_ms, bucket)
            return None
        after = bucket_item.decode(item, bucket)
        self._cache.store(shard_id, after, now_ms)
        return after.image.limits[mark.key]

    def _log_failure(
        self, what: str, consequence: str, bucket_id: BucketId, error: ZAELimiterError
    ) -> None:
        may_be_made = isinstance(error, NoAnswer | ServerFault)
        logger.warning(
            "could not mark %s of %r on %r, a later call tries again%s: %s",
            what,
            bucket_id.entity_id,
            bucket_id.resource,
            f"; if it was marked nevertheless, {consequence}" if may_be_made else "",
            error,
        )

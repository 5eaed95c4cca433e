"""Marking the thresholds of quotas, in the background, when an answer shows that they are reached.

A mark is one conditional write: the threshold is still reached in its window, and nobody has marked
it before. The client whose write succeeds tells its user, so each threshold is raised once.
"""

from __future__ import annotations

import time
from functools import partial

from zae_limiter._async.engines.dynamodb.context import TableContext
from zae_limiter.admission.thresholds import Crossing, Mark, OnThreshold, crossing, due_mark
from zae_limiter.clock import Clock
from zae_limiter.dynamodb.buckets.cache import BucketCache
from zae_limiter.dynamodb.items import bucket as bucket_item
from zae_limiter.dynamodb.items.bucket import BucketId, StoredBucket
from zae_limiter.dynamodb.items.bucket_updates import mark_write
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.transport.calls import Deadline
from zae_limiter.transport.errors import ConditionFailed, NoAnswer, ServerFault

RETRY_AFTER_S = 0.25  # after a failure; acquires need the throughput of the item, too

logger = quiet_logger(__name__)


class ThresholdMarks:
    """Marks thresholds of buckets as they are in the cache, so that looking makes no call.

    The first shard of a bucket has all of a quota, and its marks.
    """

    def __init__(self, table: TableContext, cache: BucketCache) -> None:
        self._client = table.client
        self._later = table.later
        self._cache = cache
        self._retry_at_s = 0.0

    def look(self, bucket_id: BucketId, on_threshold: OnThreshold, clock: Clock) -> None:
        """Mark the thresholds soon that a bucket has reached, and tell of them."""
        if self._due(bucket_id) is not None and time.monotonic() >= self._retry_at_s:
            mark_all = partial(self._mark_all, bucket_id, on_threshold, clock)
            self._later.add(("thresholds", bucket_id), mark_all)

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
                raised = await self._mark(bucket_id, *due, clock(), deadline)
                if raised is None:
                    return
                on_threshold(raised)
        except ZAELimiterError as error:
            self._retry_at_s = time.monotonic() + RETRY_AFTER_S
            self._log_failure(bucket_id, error)

    async def _mark(
        self, bucket_id: BucketId, bucket: StoredBucket, mark: Mark, now_ms: int, deadline: Deadline
    ) -> Crossing | None:
        """Write one mark; None if the threshold is not reached any more, or another client's."""
        shard_id = bucket_id.shard(0)
        text = mark_write(bucket_item.key(*shard_id), bucket, mark).text(self._client.table)
        try:
            answer = await self._client.call("UpdateItem", text, deadline=deadline)
        except ConditionFailed as refused:
            self._cache.store_authoritative(shard_id, refused.item, now_ms, bucket)
            return None
        after = bucket_item.decode(answer.get("Attributes", {}), bucket)
        self._cache.store(shard_id, after, now_ms)
        state = after.image.limits[mark.key]
        return crossing(bucket_id.entity_id, bucket_id.resource, mark, state, now_ms)

    def _log_failure(self, bucket_id: BucketId, error: ZAELimiterError) -> None:
        may_be_made = isinstance(error, NoAnswer | ServerFault)
        logger.warning(
            "could not mark a threshold of %r on %r, a later call tries again%s: %s",
            bucket_id.entity_id,
            bucket_id.resource,
            "; if it was marked nevertheless, only zae-limiter watch shows it"
            if may_be_made
            else "",
            error,
        )

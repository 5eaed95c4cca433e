"""Writing the counts of rejected, shadowed and waiting acquires that no write took along."""

from __future__ import annotations

from functools import partial

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.sharding.routing import ShardRouter
from zae_limiter._async.tally_keeper import TallyKeeper
from zae_limiter.admission.request import AcquireEnd, Count
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import NamespaceStateError, ZAELimiterError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.buckets.pending import PendingChange
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.finishing import ashield
from zae_limiter.runtime.parallel import agather
from zae_limiter.tallies import BucketKey, NotedTallies

LAST_COUNTS_S = 1.0  # for the counts of all buckets: closing must not take long
AT_ONCE = 16  # writes of counts side by side

logger = quiet_logger(__name__)


class TallyWrites:
    """Counts acquires as they end; writes counts that are due, and all of them at the end."""

    def __init__(
        self, table: TableContext, cache: BucketCache, router: ShardRouter, noted: NotedTallies
    ) -> None:
        self._table = table
        self._cache = cache
        self._router = router
        self._noted = noted
        self._keeper = TallyKeeper(noted, self._store_due)

    def count(self, namespace_id: str, ended: AcquireEnd) -> None:
        self._keeper.count(namespace_id, ended)

    async def close(self) -> None:
        """Write all counts. Best effort, at most 1 s. Raises no outage."""
        self._keeper.close()
        if self._noted.by_bucket:
            noted, deadline = list(self._noted.by_bucket), Deadline(LAST_COUNTS_S)
            await ashield(partial(self._store_counts, noted, deadline))

    async def _store_due(self, due: list[BucketKey]) -> None:
        await self._store_counts(due, None)

    async def _store_counts(self, buckets: list[BucketKey], deadline: Deadline | None) -> None:
        """Write the counts of buckets, some at a time; those that were not written stay noted."""
        for start in range(0, len(buckets), AT_ONCE):
            batch = buckets[start : start + AT_ONCE]
            if deadline is not None and deadline.left() <= 0:
                return
            await agather(
                self._table.parallel,
                *[partial(self._store_count, bucket, deadline) for bucket in batch],
            )

    async def _store_count(self, bucket: BucketKey, deadline: Deadline | None) -> None:
        """Write the counts of one bucket, which is created if there is none. Raises no outage."""
        noted = self._noted.by_bucket.get(bucket)
        if noted is None:  # another write has taken them along
            return
        if not self._table.usage_ms:
            self._noted.take(bucket)
            return
        bucket_id = BucketId(*bucket)
        change = Count(noted.in_force)
        deadline = deadline or self._table.store.deadline()
        pending = PendingChange(bucket_id, change, noted.clock, deadline, is_counted=False)
        try:
            if self._cache.get(pending.shard_id) is None:
                await self._table.refuse_if_purging(bucket_id.namespace_id)
            await self._router.submit(pending)
        except NamespaceStateError:  # everything of the namespace is being deleted
            self._noted.take(bucket)
        except ZAELimiterError:
            logger.debug("could not store counts of %r, will retry", bucket, exc_info=True)
        finally:
            self._noted.postpone(bucket)  # if they are still there

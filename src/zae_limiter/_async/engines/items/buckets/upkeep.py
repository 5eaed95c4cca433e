"""Upkeep of a bucket item besides its balances: the link to its parent, and its TTL."""

from __future__ import annotations

from contextlib import suppress

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.port import NOTHING
from zae_limiter.admission.image import BucketImage
from zae_limiter.admission.in_force import InForce, expires_ms
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import InfrastructureError
from zae_limiter.items.buckets.cache import BucketCache
from zae_limiter.items.stored import entities, keys
from zae_limiter.items.stored.bucket import EntityLink
from zae_limiter.items.stored.bucket_updates import later_expiry
from zae_limiter.items.stored.keys import ShardId
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.store_errors import ConditionFailed

logger = quiet_logger(__name__)


class BucketUpkeep:
    """Reads and writes that only some charges need."""

    def __init__(self, table: TableContext, cache: BucketCache) -> None:
        self._store = table.store
        self._table = table
        self._cache = cache

    async def entity_link(
        self, namespace_id: str, entity_id: str, deadline: Deadline
    ) -> EntityLink:
        """Return parent and cascade flag of an entity, to be copied into a new bucket item.

        Cached from the read of the configuration; fetched on a cache miss.
        """
        link = self._cache.entity_link(namespace_id, entity_id)
        if link is None:
            item = await self._store.get(keys.entity(namespace_id, entity_id), deadline)
            entity = None if item is None else entities.decode(item)
            self._cache.on_entity_read(namespace_id, entity_id, entity)
            link = self._cache.entity_link(namespace_id, entity_id) or EntityLink()
        return link

    async def extend_ttl(
        self,
        shard_id: ShardId,
        image: BucketImage,
        in_force: InForce,
        now_ms: int,
        deadline: Deadline,
    ) -> None:
        """Extend the TTL of a bucket that would expire before it is full. Raises no outage.

        Two concurrent debts each set the TTL for their own amount only; the returned item shows
        their sum, so the TTL is corrected after the write.
        """
        until = expires_ms(image, in_force, now_ms, self._table.usage_ms)
        later = later_expiry(keys.bucket(*shard_id), until)
        with suppress(ConditionFailed):  # another client has extended it
            try:
                await self._store.update(later, deadline, returns=NOTHING, repeatable=True)
            except InfrastructureError:
                logger.warning(
                    "could not extend the TTL of the bucket of %r on %r: its debt is forgiven if "
                    "it expires before it is repaid",
                    shard_id.entity_id,
                    shard_id.resource,
                    exc_info=True,
                )

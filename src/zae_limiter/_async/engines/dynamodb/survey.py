"""Reading the shards of a bucket."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from zae_limiter._async.engines.dynamodb.client import DynamoClient
from zae_limiter._async.engines.dynamodb.reading import batch_get
from zae_limiter.admission.shards.tree import Shard, is_whole
from zae_limiter.clock import Clock
from zae_limiter.concurrency.waiter import AWaiter
from zae_limiter.dynamodb.known import Known
from zae_limiter.dynamodb.layout import UNKNOWN
from zae_limiter.dynamodb.shared_reads import SharedReads
from zae_limiter.dynamodb.view import Place
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.records.dynamodb import keys
from zae_limiter.records.dynamodb.attributes import Item
from zae_limiter.records.dynamodb.bucket_item import StoredBucket, decode
from zae_limiter.transport.deadline import Deadline

MOST_ROUNDS = 12
LOST_S = 0.5  # who reads for others and is not back by then may never come back


class Found(NamedTuple):
    """One shard as it was read."""

    item: Item
    bucket: StoredBucket


class Survey:
    """Whoever wants the same at the same time reads it once."""

    def __init__(self, client: DynamoClient, known: Known) -> None:
        self._client = client
        self._known = known
        self._reads = SharedReads()

    async def look(
        self, place: Place, numbers: Collection[int], clock: Clock, deadline: Deadline
    ) -> None:
        """Read some shards; if somebody does so already, wait for that first.

        That will do if it succeeds, shows what is wanted here, and has begun after this.
        """
        since_ms = clock()
        while (waiter := self._reads.join(place, AWaiter)) is not None:
            assert isinstance(waiter, AWaiter)
            try:
                await waiter.wait(min(LOST_S, max(deadline.left(), 0.0)))
            except TimeoutError:
                break
            if self._were_seen(place, numbers, since_ms):
                return
        try:
            await self.read(place, numbers, clock, deadline)
        finally:
            self._reads.done(place)

    def _were_seen(self, place: Place, numbers: Collection[int], since_ms: int) -> bool:
        found = [self._known.get((*place, number)) for number in numbers]
        return all(seen is not None and seen.at_ms >= since_ms for seen in found)

    async def whole(
        self, place: Place, clock: Clock | None, deadline: Deadline
    ) -> dict[Shard, Found]:
        """All shards, read until they fit together; none if there is no bucket."""
        layout = self._known.layout(place) or UNKNOWN
        for _ in range(MOST_ROUNDS):
            numbers = [shard.number for shard in layout.live]
            items = await self.read(place, numbers, clock, deadline)
            if 0 not in items:
                return {}
            found: dict[Shard, Found] = {}
            for number in numbers:
                layout = layout if number in items else layout.without(number)
            for item in items.values():
                bucket = decode(item)
                found[bucket.shard] = Found(item, bucket)
                layout = layout.with_seen(bucket.shard, bucket.generation)
            if is_whole(found):
                return found
        raise RateLimiterUnavailable("others keep splitting and merging this bucket; try again")

    async def read(
        self, place: Place, numbers: Collection[int], clock: Clock | None, deadline: Deadline
    ) -> dict[int, Item]:
        """Some shards as they are, remembered as of ``clock``; what is not there is left out."""
        now_ms = None if clock is None else clock()
        wanted = {keys.bucket(*place, number): number for number in numbers}
        read = await batch_get(self._client, wanted, consistent=True, deadline=deadline)
        items = {wanted[key]: item for key, item in read.items()}
        if now_ms is not None:
            for number in numbers:
                if number not in items:
                    self._known.missed((*place, number))
            for number, item in items.items():
                self._known.learn((*place, number), item, now_ms, None)
        return items

"""Writing usage rows: hours that buckets have finished, and days that they begin."""

from __future__ import annotations

from functools import partial

from zae_limiter._async.engines.items.context import TableContext
from zae_limiter._async.engines.items.port import ITEM_BEFORE, NOTHING
from zae_limiter.admission.usage import HourUsage
from zae_limiter.clock import Deadline
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.items.buckets.turning import BegunHour
from zae_limiter.items.stored.keys import BucketId, ShardId
from zae_limiter.items.stored.update import ItemUpdate
from zae_limiter.items.stored.usage import day_row
from zae_limiter.items.stored.usage.hours import ItemHours
from zae_limiter.quiet_logging import quiet_logger
from zae_limiter.runtime.bounded import BoundedDict
from zae_limiter.store_errors import NoAnswer, NotSent, ServerFault

MAX_STORED = 10_000  # hours that need not be stored again; bounds memory

logger = quiet_logger(__name__)


class UsageRows:
    """Write usage rows. Every write is idempotent."""

    def __init__(self, table: TableContext) -> None:
        self._store = table.store
        self._table = table
        self._stored: BoundedDict[tuple[str, int], bool] = BoundedDict(MAX_STORED)

    @property
    def kept_ms(self) -> int:
        """How long usage is kept; 0 if it is not counted by the hour at all."""
        return self._table.usage_ms

    @property
    def kept_days(self) -> int:
        return self._table.usage_days

    async def store(self, shard_id: ShardId, hours: ItemHours, deadline: Deadline) -> bool:
        """Store the finished hour of an item; returns when that is certain.

        True if it was stored before, by another client that is probably about to turn the bucket,
        or by the aggregator. Raises NotSent if storing is not certain: the write that waits for it
        is not made then.
        """
        assert hours.finished is not None
        stored = hours.origin, hours.finished.hour
        if stored in self._stored:
            return False
        update = day_row.store(
            shard_id, hours.origin, [hours.finished], self.kept_days, closes=hours.closes_day
        )
        try:
            before = await self._store.update(
                update, deadline, returns=ITEM_BEFORE, repeatable=True
            )
        except (NoAnswer, ServerFault) as error:
            raise NotSent(
                "the usage of an earlier hour could not be stored; try again", cause=error
            ) from error
        self._stored.put(stored, True)
        return day_row.is_stored(before, *stored)

    def announce(self, shard_id: ShardId, begun: BegunHour) -> None:
        """Announce in the background the day that an hour begins in a bucket, if it begins one.

        Until then the day is hidden from queries of a whole resource, and from no others.
        """
        if self.kept_days and begun.is_first_of_day:
            day = day_row.day_of(begun.hour)
            announced = day_row.announce(shard_id, day, begun.origin, self.kept_days)
            self._table.later.add((shard_id, begun.origin, day), partial(self._write, announced))

    async def credit_late(
        self,
        bucket_id: BucketId,
        write_id: str,
        credit: HourUsage,
        deadline: Deadline,
    ) -> None:
        """Count a credit to a bucket that does not exist any more. Raises no outage."""
        update = day_row.late_credit(bucket_id, write_id, credit, self.kept_days)
        try:
            await self._write(update, deadline)
        except ZAELimiterError:
            logger.warning(
                "could not count a late refund to %r on %r as usage",
                bucket_id.entity_id,
                bucket_id.resource,
                exc_info=True,
            )

    async def _write(self, update: ItemUpdate, deadline: Deadline) -> None:
        await self._store.update(update, deadline, returns=NOTHING, repeatable=True)

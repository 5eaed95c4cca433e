"""The two writes of finished hours: one stores them, one clears the last in the bucket item."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from zae_limiter.admission.usage import HourUsage
from zae_limiter.dynamodb import expressions
from zae_limiter.items.stored.keys import Key, ShardId
from zae_limiter.items.stored.usage import day_row, hours
from zae_limiter_aggregator.stream import ParsedBucketRecord


class DayId(NamedTuple):
    """Identifies the usage row of an origin: all of its hours in a batch are stored together."""

    partition_key: str
    origin: str
    day: int


@dataclass(slots=True)
class FinishedHours:
    """Finished hours of one bucket item and day, by hour; ``record`` has the latest of them.

    ``is_latest`` is False if the batch has an hour of a later day: then the bucket item does not
    hold these hours any more. ``sequence_numbers`` are those of all records with these hours.
    """

    record: ParsedBucketRecord
    is_latest: bool = True
    by_hour: dict[int, HourUsage] = field(default_factory=dict)
    sequence_numbers: list[str] = field(default_factory=list)

    def store(self, table: str, retention_days: int) -> str:
        """Return the body of the UpdateItem that stores the hours; the write is idempotent."""
        record, state = self.record, self.record.state
        assert state is not None
        shard_id = ShardId(record.namespace_id, record.entity_id, record.resource, record.shard_id)
        in_order = [self.by_hour[hour] for hour in sorted(self.by_hour)]
        update = day_row.store(
            shard_id, state.origin, in_order, retention_days, closes=state.closes_day
        )
        return expressions.text(update, table)

    def clear(self, table: str) -> str:
        """Return the body of the UpdateItem that clears the latest hour in the bucket item.

        DynamoDB refuses the write if a client has already turned the hour over.
        """
        assert self.record.state is not None
        return expressions.text(hours.clear(Key.of(self.record.key), self.record.state), table)


def finished_hours(records: Iterable[ParsedBucketRecord]) -> list[FinishedHours]:
    """Return the finished hours of a batch by bucket item and day, without duplicates."""
    days: dict[DayId, FinishedHours] = {}
    latest: dict[tuple[str, str], int] = {}
    for record in records:
        finished, state = record.finished, record.state
        if finished is None or state is None:
            continue
        item, hour = (record.key["PK"]["S"], state.origin), finished.hour
        latest[item] = max(hour, latest.get(item, hour))
        of_day = days.setdefault(DayId(*item, day_row.day_of(hour)), FinishedHours(record))
        if hour >= max(of_day.by_hour, default=hour):
            of_day.record = record
        of_day.by_hour[hour] = finished
        of_day.sequence_numbers.append(record.sequence_number)
    for day_id, of_day in days.items():
        of_day.is_latest = latest[day_id[:2]] in of_day.by_hour
    return list(days.values())

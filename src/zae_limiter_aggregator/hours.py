"""The two writes of a finished hour: one stores it, one clears it in the bucket item."""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.dynamodb.items import hours, usage
from zae_limiter.dynamodb.items.keys import BucketId
from zae_limiter_aggregator.stream import ParsedBucketRecord


class HourId(NamedTuple):
    """Identifies a finished hour: all records of the same hour have the same id."""

    partition_key: str
    origin: str
    hour: int


class FinishedHour(NamedTuple):
    """A finished hour, and the sequence numbers of all records that contain the hour."""

    record: ParsedBucketRecord
    sequence_numbers: list[str]

    def store(self, table: str, retention_days: int) -> str:
        """Return the body of the UpdateItem that stores the hour; the write is idempotent."""
        record, finished = self.record, self.record.finished
        assert finished is not None
        bucket_id = BucketId(record.namespace_id, record.entity_id, record.resource)
        expires_s = usage.expires_s(finished.hour, retention_days)
        return usage.store_text(table, bucket_id, finished, expires_s)

    def clear(self, table: str) -> str:
        """Return the body of the UpdateItem that clears the hour in the bucket item.

        DynamoDB refuses the write if a client has already turned the hour over.
        """
        assert self.record.state is not None
        return hours.clear_text(table, self.record.key, self.record.state)


class FinishedHours:
    """The finished hours of a batch, without duplicates."""

    def __init__(self) -> None:
        self._hours: dict[HourId, FinishedHour] = {}

    def add(self, record: ParsedBucketRecord) -> None:
        """Add the finished hour of a record, if it has one."""
        finished = record.finished
        if finished is None:
            return
        hour_id = HourId(record.key["PK"]["S"], finished.origin, finished.hour)
        known = self._hours.get(hour_id)
        if known is None:
            self._hours[hour_id] = FinishedHour(record, [record.sequence_number])
        else:
            known.sequence_numbers.append(record.sequence_number)

    def all(self) -> list[FinishedHour]:
        return list(self._hours.values())

"""Parse records of the table's stream: finished hours and expired audit events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter.admission.usage import HourUsage, whole_amounts
from zae_limiter.items.stored.attributes import Item
from zae_limiter.items.stored.usage import hours
from zae_limiter.items.stored.usage.hours import ItemHours

STATE = schema.sk_state()
AUDIT_PREFIX = schema.sk_audit("")
WRITE_ID = "op"
# TTL deletes expired items under this identity; a purge deletes items as a client.
TTL_IDENTITY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class MalformedRecord(Exception):
    """A stream record is unreadable; delivering the record again does not help."""


class ParsedBucketLimit(NamedTuple):
    """The consumption of one limit in a finished hour, in millitokens, net of refunds.

    A budget is named ``name@currency``, and its amounts are billionths of the currency unit.

    ``through_children_milli`` is the part that cascaded from children.
    """

    name: str
    net_milli: int
    through_children_milli: int


class ConsumptionDelta(NamedTuple):
    """The tokens that a finished hour adds to the usage of a limit of an entity on a resource."""

    namespace_id: str
    entity_id: str
    resource: str
    limit_name: str
    tokens_delta: int
    hour: int


class ParsedBucketRecord(NamedTuple):
    """A bucket item after the write that created the bucket or turned its hour."""

    sequence_number: str
    key: Item
    namespace_id: str
    entity_id: str
    resource: str
    shard_id: int
    state: ItemHours | None

    @property
    def finished(self) -> HourUsage | None:
        """The finished hour that must be stored; None if the bucket has none."""
        return None if self.state is None else self.state.finished

    @property
    def limits(self) -> dict[str, ParsedBucketLimit]:
        """The consumption of each limit in the finished hour, by name."""
        if self.finished is None:
            return {}
        through = self.finished.through_children
        return {
            name: ParsedBucketLimit(name, net_milli, through.get(name, 0))
            for name, net_milli in self.finished.used.items()
        }

    @property
    def deltas(self) -> list[ConsumptionDelta]:
        """The whole tokens that the finished hour adds to the usage of each limit."""
        bucket = (self.namespace_id, self.entity_id, self.resource)
        hour = 0 if self.finished is None else self.finished.hour
        used = whole_amounts({name: limit.net_milli for name, limit in self.limits.items()})
        return [ConsumptionDelta(*bucket, name, amount, hour) for name, amount in used.items()]


class ExpiredEvent(NamedTuple):
    """An audit event that TTL has removed from the table."""

    sequence_number: str
    item: Item


Parsed = ParsedBucketRecord | ExpiredEvent | None


def sequence_number(record: object) -> str | None:
    """Return the sequence number of a record, by which Lambda identifies it; None without one."""
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    number = change.get("SequenceNumber") if isinstance(change, Mapping) else None
    return number if isinstance(number, str) and number else None


def parse(record: Mapping[str, Any]) -> Parsed:
    """Parse a record; None if the aggregator ignores it. Raises MalformedRecord."""
    try:
        change = record["dynamodb"]
        sort_key = change["Keys"]["SK"]["S"]
        if sort_key == STATE:
            return _bucket(change)
        if sort_key.startswith(AUDIT_PREFIX):
            return _expired_event(record)
        return None
    except Exception as error:
        raise MalformedRecord(f"{type(error).__name__}: {error}") from error


def _bucket(change: Mapping[str, Any]) -> ParsedBucketRecord | None:
    image = change.get("NewImage")
    if image is None or not image[WRITE_ID]["S"].startswith(hours.TURN_MARK):
        return None
    state = hours.decode(image) if hours.FINISHED in image else None
    key = schema.parse_bucket_pk(change["Keys"]["PK"]["S"])
    return ParsedBucketRecord(change["SequenceNumber"], change["Keys"], *key, state)


def _expired_event(record: Mapping[str, Any]) -> ExpiredEvent | None:
    if record["eventName"] != "REMOVE" or not is_by_ttl(record):
        return None
    change = record["dynamodb"]
    return ExpiredEvent(change["SequenceNumber"], change["OldImage"])


def is_by_ttl(record: Mapping[str, Any]) -> bool:
    """Return whether TTL removed the item of a record."""
    identity = record.get("userIdentity") or {}
    # Lambda begins the field names with small letters, the API of streams with capital letters.
    fields = {name[:1].lower() + name[1:]: value for name, value in identity.items()}
    return all(fields.get(name) == value for name, value in TTL_IDENTITY.items())

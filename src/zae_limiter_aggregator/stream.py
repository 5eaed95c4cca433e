"""What a record of the table's stream says: a finished hour, an expired audit event, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter import schema
from zae_limiter.dynamodb.items import hours
from zae_limiter.dynamodb.items.attributes import Item
from zae_limiter.dynamodb.items.hours import HourState
from zae_limiter.dynamodb.items.usage import OriginHour

STATE = schema.sk_state()
AUDIT_PREFIX = schema.sk_audit("")
WRITE_ID = "op"
# Of the service that deletes expired items; a purge deletes them on behalf of a client.
TTL_IDENTITY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class MalformedRecord(Exception):
    """A record that cannot be read, however often it is delivered."""


class ParsedBucketLimit(NamedTuple):
    """What one limit consumed in a finished hour, in millitokens, net of refunds.

    ``through_children_milli`` is the part that cascaded from children.
    """

    name: str
    net_milli: int
    through_children_milli: int


class ConsumptionDelta(NamedTuple):
    """What a finished hour adds to the usage of one limit of an entity on a resource."""

    namespace_id: str
    entity_id: str
    resource: str
    limit_name: str
    tokens_delta: int
    hour: int


class ParsedBucketRecord(NamedTuple):
    """A bucket item after a write that created it or turned its hour.

    ``finished`` is the hour that has to be stored, or None.
    """

    sequence_number: str
    key: Item
    namespace_id: str
    entity_id: str
    resource: str
    shard_id: int
    state: HourState | None
    finished: OriginHour | None

    @property
    def limits(self) -> dict[str, ParsedBucketLimit]:
        """What each limit consumed in the finished hour, by name."""
        if self.finished is None:
            return {}
        return {
            name: ParsedBucketLimit(name, *used) for name, used in self.finished.used_milli.items()
        }

    @property
    def deltas(self) -> list[ConsumptionDelta]:
        """What the finished hour adds to the usage of each limit, in whole tokens."""
        bucket = (self.namespace_id, self.entity_id, self.resource)
        hour = 0 if self.finished is None else self.finished.hour
        return [
            ConsumptionDelta(*bucket, limit.name, limit.net_milli // 1000, hour)
            for limit in self.limits.values()
        ]


class ExpiredEvent(NamedTuple):
    """An audit event that TTL has removed from the table."""

    sequence_number: str
    item: Item


Parsed = ParsedBucketRecord | ExpiredEvent | None


def sequence_number(record: object) -> str | None:
    """Return how Lambda wants a record to be named; None if it has no number."""
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    number = change.get("SequenceNumber") if isinstance(change, Mapping) else None
    return number if isinstance(number, str) and number else None


def parse(record: Mapping[str, Any]) -> Parsed:
    """Parse a record; None if it is of no concern. Raises MalformedRecord."""
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
    finished = None if state is None else hours.finished_hour(image, state)
    key = schema.parse_bucket_pk(change["Keys"]["PK"]["S"])
    return ParsedBucketRecord(change["SequenceNumber"], change["Keys"], *key, state, finished)


def _expired_event(record: Mapping[str, Any]) -> ExpiredEvent | None:
    if record["eventName"] != "REMOVE" or not is_by_ttl(record):
        return None
    change = record["dynamodb"]
    return ExpiredEvent(change["SequenceNumber"], change["OldImage"])


def is_by_ttl(record: Mapping[str, Any]) -> bool:
    """Whether an item was removed because it had expired."""
    identity = record.get("userIdentity") or {}
    # Lambda spells the names like this; the API of streams begins them with capital letters.
    spelled = {name[:1].lower() + name[1:]: value for name, value in identity.items()}
    return all(spelled.get(name) == value for name, value in TTL_IDENTITY.items())

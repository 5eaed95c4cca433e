"""Parsing records of the stream."""

import pytest

from tests.support.dynamodb.streams import TTL_IDENTITY, bucket_record, removal_record
from tests.support.dynamodb.usage_rows import bucket_with_hours
from tests.support.hours import hour_of
from zae_limiter.items.stored import audit
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.models.audit import AuditEvent
from zae_limiter_aggregator import ConsumptionDelta, ParsedBucketLimit, ParsedBucketRecord
from zae_limiter_aggregator.stream import ExpiredEvent, MalformedRecord, parse, sequence_number

USER = BucketId("ns", "user", "api")
TURNED = bucket_with_hours(USER, "abc", 12, 5, shard=3, finished=(9, 4))
EVENT = AuditEvent("01H", "2026-01-31T12:00:00Z", "entity_created", "user", None, None, {"a": 1})
AUDITED = audit.encode("ns", EVENT, 90)


def test_a_turn_shows_the_finished_hour():
    record = parse(bucket_record(TURNED, 7))
    assert isinstance(record, ParsedBucketRecord)
    assert record.finished == hour_of(9, {"rpm": 4}, 4)
    assert (record.sequence_number, record.shard_id, record.state.origin) == ("7", 3, "abc")
    assert record.limits == {"rpm": ParsedBucketLimit("rpm", 4000, 0)}
    assert record.deltas == [ConsumptionDelta("ns", "user", "api", "rpm", 4, 9)]


def test_a_creation_has_nothing_to_store():
    record = parse(bucket_record(bucket_with_hours(USER, "0.abc", 12, 5), 7, "INSERT"))
    assert record.finished is None
    assert (record.limits, record.deltas) == ({}, [])


@pytest.mark.parametrize("write_id", ["65f.1", ""])
def test_writes_that_turn_nothing_are_of_no_concern(write_id):
    item = {**TURNED, "op": {"S": write_id}}
    assert parse(bucket_record(item, 7)) is None


def test_the_removal_of_a_bucket_is_of_no_concern():
    assert parse(removal_record(TURNED, 7)) is None
    assert parse(removal_record(TURNED, 7, None)) is None


def test_an_expired_event_is_told_from_a_purged_one():
    assert parse(removal_record(AUDITED, 7)) == ExpiredEvent("7", AUDITED)
    as_in_the_api = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    assert parse(removal_record(AUDITED, 7, as_in_the_api)) == ExpiredEvent("7", AUDITED)
    for identity in (
        None,
        {},
        {**TTL_IDENTITY, "type": "AWSAccount"},
        {**TTL_IDENTITY, "principalId": "someone"},
    ):
        assert parse(removal_record(AUDITED, 7, identity)) is None


def test_a_new_event_is_not_expired():
    assert parse({**bucket_record(AUDITED, 7, "INSERT"), "userIdentity": TTL_IDENTITY}) is None


@pytest.mark.parametrize("sk", ["#META", "#USAGE#api#2026-01-01#0", "#CONFIG", ""])
def test_other_items_are_of_no_concern(sk):
    assert parse(bucket_record({"PK": {"S": "ns/x"}, "SK": {"S": sk}}, 7)) is None


def without(*path):
    record = bucket_record(TURNED, 7)
    inner = record["dynamodb"] = dict(record["dynamodb"], NewImage=dict(TURNED))
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return record


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        "text",
        {"dynamodb": None},
        {"dynamodb": {"Keys": {}}},
        without("SequenceNumber"),
        without("NewImage", "op"),
        without("NewImage", "o"),
        bucket_record({**TURNED, "u0": {"N": "many"}}, 7),
        bucket_record({**TURNED, "p_new": {"S": "z:1:2"}}, 7),
        bucket_record({**TURNED, "PK": {"S": "no bucket"}}, 7),
    ],
)
def test_what_cannot_be_read_is_malformed(record):
    with pytest.raises(MalformedRecord):
        parse(record)


def test_a_record_is_named_by_its_sequence_number():
    assert sequence_number(bucket_record(TURNED, 7)) == "7"
    for record in (None, "text", {}, {"dynamodb": 5}, {"dynamodb": {"SequenceNumber": 7}}):
        assert sequence_number(record) is None

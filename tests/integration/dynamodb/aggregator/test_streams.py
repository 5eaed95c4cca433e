"""Records of a real stream, delivered twice, late, shuffled and failing in part."""

import json
import random

import pytest

from tests.integration.dynamodb.ports.world import NS, Raw
from tests.support.dynamodb.streams import stream_records
from tests.support.dynamodb.usage_rows import bucket_with_hours
from tests.support.hours import hour_of
from zae_limiter.items.stored import keys
from zae_limiter.items.stored.keys import BucketId
from zae_limiter.items.stored.usage import day_row, hours
from zae_limiter_aggregator import handler

USERS = [BucketId(NS, f"user-{number}", "api") for number in range(5)]
HOUR = 490_000


@pytest.fixture
def raw(streamed_table, endpoint, boto):
    return Raw(boto(endpoint), streamed_table)


def turn(raw, user, hour, used):
    """Turn the hour of a bucket as a client does; the finished one has been cleared before."""
    raw.boto.update_item(
        TableName=raw.table,
        Key=keys.bucket(*user).attributes,
        UpdateExpression=(
            "SET u0 = c_rpm - b0, b0 = c_rpm, ua = ac, ac = :one, ph = h, h = :hour, op = :op "
            "ADD c_rpm :used"
        ),
        ConditionExpression="h < :hour AND attribute_not_exists(ph)",
        ExpressionAttributeValues={
            ":hour": {"N": str(hour)},
            ":op": {"S": f"~{hour}"},
            ":one": {"N": "1"},
            ":used": {"N": str(used * 1000)},
        },
    )


def charge(raw, user, used):
    """Charge a bucket in its running hour."""
    raw.boto.update_item(
        TableName=raw.table,
        Key=keys.bucket(*user).attributes,
        UpdateExpression="SET op = :op ADD c_rpm :used, ac :one",
        ExpressionAttributeValues={
            ":op": {"S": "65f.2"},
            ":one": {"N": "1"},
            ":used": {"N": str(used * 1000)},
        },
    )


def rows(raw):
    """Return what is stored, by entity and hour."""
    found = [day_row.decode_row(item) for item in raw.all() if "#USAGE#" in item["SK"]["S"]]
    return {
        (row.id.entity_id, hour): {origin: value}
        for row in found
        for (hour, origin), value in row.hours.items()
    }


def life(raw):
    """Have some buckets count for three hours; return what must be stored in the end."""
    expected = {}
    for number, user in enumerate(USERS):
        origin = f"0.x{number}"
        raw.put(bucket_with_hours(user, origin, HOUR, number))
        charge(raw, user, 10)
        expected[user.entity_id, HOUR] = {origin: hour_of(HOUR, {"rpm": 10 + number}, number + 1)}
        turn(raw, user, HOUR + 2, 7)
        charge(raw, user, 1)
    return expected


def delivered(event_records):
    return handler({"Records": event_records})


def finished(raw):
    return [item["PK"]["S"] for item in raw.all() if hours.FINISHED in item]


def test_finished_hours_are_stored_and_cleared(raw, endpoint, capsys):
    expected = life(raw)
    assert delivered(stream_records(endpoint, raw.table)) == {"batchItemFailures": []}
    assert rows(raw) == expected
    assert finished(raw) == []
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (metrics["Hours"], metrics["Failures"], metrics["Skipped"]) == (5, 0, 0)
    assert metrics["Records"] >= 20


def test_the_records_of_its_own_writes_change_nothing(raw, endpoint):
    expected = life(raw)
    for _ in range(3):
        delivered(stream_records(endpoint, raw.table))
    assert rows(raw) == expected


@pytest.mark.parametrize("seed", range(4))
def test_deliveries_may_be_doubled_shuffled_late_and_split(raw, endpoint, seed):
    expected, dice = life(raw), random.Random(seed)
    first = stream_records(endpoint, raw.table)
    delivered(first)
    for user in USERS:  # another hour, whose records come together with the old ones
        turn(raw, user, HOUR + 5, 1)
        origin = next(iter(expected[user.entity_id, HOUR]))
        expected[user.entity_id, HOUR + 2] = {origin: hour_of(HOUR + 2, {"rpm": 8}, 2)}
    everything = first + stream_records(endpoint, raw.table)
    dice.shuffle(everything)
    while everything:
        size = dice.randint(1, 30)
        delivered(everything[:size])
        everything = everything[size:]
    assert rows(raw) == expected
    assert finished(raw) == []


def test_a_late_record_does_not_clear_a_later_hour(raw, endpoint):
    life(raw)
    first = stream_records(endpoint, raw.table)
    delivered(first)
    turn(raw, USERS[0], HOUR + 5, 1)
    stored = rows(raw)
    delivered(first)
    assert rows(raw) == stored
    assert finished(raw) == [keys.bucket(*USERS[0]).pk]


@pytest.mark.parametrize("kind", ["error_after", "lose_answer", "deny"])
def test_calls_that_fail_are_made_up_for_by_the_next_delivery(
    raw, endpoint, proxy, monkeypatch, kind
):
    expected = life(raw)
    records = stream_records(endpoint, raw.table)
    with monkeypatch.context() as through_proxy:
        through_proxy.setenv("AWS_ENDPOINT_URL_DYNAMODB", proxy.url)
        through_proxy.setenv("AWS_ACCESS_KEY_ID", "AKIAPROXY")  # a function with new connections
        dice = random.Random(kind)
        with proxy.fault(kind, operation="UpdateItem", when=lambda _: dice.random() < 0.5):
            failed = delivered(records)["batchItemFailures"]
    assert bool(failed) == (kind == "deny")
    delivered(records)
    assert rows(raw) == expected
    assert finished(raw) == []


def test_a_deleted_bucket_is_not_made_again(raw, endpoint):
    expected = life(raw)
    records = stream_records(endpoint, raw.table)
    key = keys.bucket(*USERS[0]).attributes
    raw.boto.delete_item(TableName=raw.table, Key=key)
    assert delivered(records) == {"batchItemFailures": []}
    assert rows(raw) == expected
    assert raw.get(keys.bucket(*USERS[0])) is None

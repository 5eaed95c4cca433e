"""A batch of records: stored, failed and skipped records."""

import json
import random
import time

import pytest

from tests.support.dynamodb import other_forms
from tests.support.dynamodb.streams import bucket_record, removal_record
from tests.support.dynamodb.usage_rows import bucket_with_hours
from tests.unit.aggregator.test_archive import expired
from zae_limiter.dynamodb.expressions import body as body_of
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.items.stored import keys, system
from zae_limiter.items.stored.keys import BucketId, Key
from zae_limiter.items.stored.usage import day_row, hours
from zae_limiter.store_errors import ConditionFailed, ServerFault, Throttled
from zae_limiter.transport.errors import Denied, Refused
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.report import Log


class Recorder:
    """Takes calls instead of DynamoDB and S3; ``fail`` may raise for a body or object name."""

    table = "my-table"

    def __init__(self, retention_days=30, fail=lambda body: None):
        self.bodies, self.objects, self.reads = [], {}, 0
        self.retention_days, self.fail = retention_days, fail

    def call(self, operation, body):
        if operation == "GetItem":
            self.reads += 1
            self.fail(body)
            record = {"usage_retention_days": self.retention_days}
            assert body["Key"] == keys.record("_", "version").attributes
            return {"Item": system.encode_document("_", "version", record)}
        assert operation == "UpdateItem"
        decoded = json.loads(body)
        self.fail(decoded)
        self.bodies.append(decoded)
        return {}

    def put_object(self, bucket, name, body):
        self.fail(name)
        assert bucket == "archive"
        self.objects[name] = body


class Batch:
    """A processor with its calls and its log lines."""

    def __init__(self, calls=None, bucket="archive"):
        self.calls = calls or Recorder()
        self.processor = Processor(self.calls, bucket)
        self.lines = []

    def process(self, records, seconds=60):
        log = Log("request-1", lambda line: self.lines.append(json.loads(line)))
        try:
            return self.processor.process(records, log, time.monotonic() + seconds)
        finally:
            self.processor.close()


def turned(number, used=4):
    user = BucketId("ns", f"user-{number}", "api")
    return bucket_with_hours(user, "0.abc", 12, 5, finished=(9, used))


def turns(count):
    return [bucket_record(turned(number), 100 + number) for number in range(count)]


def row_write(shard_id, *items):
    """Return the write that stores the finished hours of one day, as an item has shown them."""
    states = [hours.decode(item) for item in items]
    finished, closes = [each.finished for each in states], states[-1].closes_day
    return day_row.store(shard_id, states[0].origin, finished, 30, closes=closes)


def is_store(body):
    return body["Key"]["SK"]["S"].startswith("#USAGE#")


def test_a_finished_hour_is_stored_and_then_cleared():
    batch, item = Batch(), turned(1)
    result = batch.process([bucket_record(item, 7)])
    stored, cleared = batch.calls.bodies
    shard_id = BucketId("ns", "user-1", "api").shard(0)
    wanted = row_write(shard_id, item)
    assert stored == {"TableName": "my-table", **body_of(wanted)}
    wanted = body_of(hours.clear(Key.of(item), hours.decode(item)))
    assert cleared == {"TableName": "my-table", **wanted}
    assert (result.processed_count, result.snapshots_updated, result.failed) == (1, 1, [])
    assert result.response() == {"batchItemFailures": []}


def test_names_that_need_escapes_are_stored_as_they_are():
    batch = Batch()
    user = BucketId("ns", 'a"b\\c ü%s', "api")
    item = bucket_with_hours(user, "0.a-_", 12, 5, finished=(9, 1))
    assert not batch.process([bucket_record(item, 7)]).errors
    wanted = body_of(row_write(user.shard(0), item))
    assert batch.calls.bodies[0] == {"TableName": "my-table", **wanted}


def test_an_hour_that_comes_twice_is_written_once():
    batch, records = Batch(), turns(40)
    delivered = records + [bucket_record(turned(number), 500 + number) for number in range(40)]
    random.Random(1).shuffle(delivered)
    result = batch.process(delivered)
    assert result.snapshots_updated == 40
    assert len(batch.calls.bodies) == 80
    for number in range(40):  # an hour is stored before it is cleared
        about = [
            is_store(body)
            for body in batch.calls.bodies
            if f"user-{number}" in body["Key"]["PK"]["S"].replace("#", " ").split(" ")
        ]
        assert about == [True, False]


def test_hours_of_a_bucket_that_come_together_are_one_write_for_each_day():
    """The bucket holds the latest hour only, so only that one is cleared."""
    batch, user = Batch(), BucketId("ns", "user", "api")
    spans = [(9, 12), (12, 23), (23, 25), (25, 26)]
    items = [
        bucket_with_hours(user, "abc", running, 5, finished=(finished, 1 + finished))
        for finished, running in spans
    ]
    records = [bucket_record(item, 100 + number) for number, item in enumerate(items)]
    random.Random(3).shuffle(records)
    result = batch.process([*records, records[0]])
    assert (result.snapshots_updated, result.failed) == (4, [])
    cleared, *days = sorted(batch.calls.bodies, key=lambda body: body["Key"]["SK"]["S"])
    assert [body["Key"]["SK"]["S"][-12:-2] for body in days] == ["1970-01-01", "1970-01-02"]
    for body, of_day in zip(days, (items[:3], items[3:]), strict=True):
        wanted = row_write(user.shard(0), *of_day)
        assert body == {"TableName": "my-table", **body_of(wanted)}
    assert {"N": "25"} in cleared["ExpressionAttributeValues"].values()


def test_the_retention_is_read_once_while_the_function_is_warm():
    batch = Batch()
    for _ in range(3):
        batch.process(turns(1))
    assert batch.calls.reads == 1


def test_usage_that_is_turned_off_is_not_stored():
    batch = Batch(Recorder(retention_days=0))
    assert not batch.process(turns(2)).errors
    assert batch.calls.bodies == []


class OtherRecord(Recorder):
    """A table whose version record this version cannot read."""

    def __init__(self, record):
        super().__init__()
        self.record = record

    def call(self, operation, body):
        return {"Item": self.record} if operation == "GetItem" else super().call(operation, body)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (system.encode_document("_", "version", {"schema_version": 99}), "schema 99"),
        (other_forms.version(), "is not one of this version of zae-limiter"),
    ],
)
def test_nothing_is_written_to_a_table_of_another_version(record, reason):
    batch = Batch(OtherRecord(record))
    result = batch.process(turns(2))
    assert batch.calls.bodies == []
    assert len(result.failed) == 2, "a later version of the function can store them"
    assert reason in result.errors[0]


@pytest.mark.parametrize("count", [3, 100])
def test_only_what_failed_is_delivered_again(count):
    def fail(body):
        if body["Key"]["PK"]["S"] == "ns/ENTITY#user-2":
            raise Throttled("too much")

    batch = Batch(Recorder(fail=fail))
    result = batch.process(turns(count))
    assert result.response() == {"batchItemFailures": [{"itemIdentifier": "102"}]}
    assert result.snapshots_updated == count - 1
    (line,) = batch.lines
    assert (line["level"], line["error_type"], line["request_id"]) == (
        "ERROR",
        "Throttled",
        "request-1",
    )


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ServerFault("broken"), True),
        (RateLimiterUnavailable("away"), True),
        (Denied("no rights", code="AccessDeniedException"), True),
        (Refused("too large", code="ValidationException"), False),
        (ZeroDivisionError("a defect"), False),
    ],
)
def test_a_record_is_delivered_again_only_if_that_may_help(error, again):
    def fail(body):
        if "TableName" in body and "user-0" in str(body["Key"]):
            raise error

    batch = Batch(Recorder(fail=fail))
    result = batch.process(turns(2))
    assert (result.failed, result.skipped) == ((["100"], 0) if again else ([], 1))
    assert result.snapshots_updated == 1
    assert len(batch.lines) == len(result.errors) == 1


def test_an_hour_that_was_cleared_before_is_no_failure():
    def fail(body):
        if "TableName" in body and not is_store(body):
            raise ConditionFailed(None)

    assert Batch(Recorder(fail=fail)).process(turns(2)).snapshots_updated == 2


def test_an_hour_that_is_not_cleared_is_delivered_again():
    def fail(body):
        if "TableName" in body and not is_store(body):
            raise Throttled("too much")

    assert Batch(Recorder(fail=fail)).process(turns(1)).failed == ["100"]


def test_without_the_retention_all_hours_are_delivered_again():
    def fail(body):
        if "TableName" not in body:
            raise ServerFault("broken")

    assert Batch(Recorder(fail=fail)).process(turns(2)).failed == ["100", "101"]


def test_a_poison_record_neither_blocks_nor_loses_its_batch():
    poison = bucket_record({**turned(5), "u0": {"N": "many"}}, 55)
    records = [None, poison, {"dynamodb": {"Keys": 3}}, *turns(3), "text"]
    batch = Batch()
    result = batch.process(records)
    assert (result.snapshots_updated, result.skipped, result.failed) == (3, 4, [])
    assert {line.get("sequence_number") for line in batch.lines} == {"", "55"}
    assert all(line["error_type"] == "MalformedRecord" for line in batch.lines)


def test_hours_for_which_no_time_is_left_are_delivered_again():
    batch = Batch()
    assert batch.process(turns(3), seconds=-1).failed == ["100", "101", "102"]
    assert batch.calls.bodies == []


def removals(count):
    return [removal_record(expired(number).item, 1000 + number) for number in range(count)]


def test_expired_events_are_archived_and_purged_ones_are_not():
    batch = Batch()
    purged = removal_record(expired(9).item, 1009, identity=None)
    result = batch.process([*removals(3), purged])
    assert (result.events_archived, result.failed, len(batch.calls.objects)) == (3, [], 1)
    batch.process(removals(3))
    assert len(batch.calls.objects) == 1


def test_without_a_bucket_nothing_is_archived():
    batch = Batch(bucket=None)
    assert batch.process(removals(3)).events_archived == 0
    assert batch.calls.objects == {}


def test_events_that_could_not_be_archived_are_delivered_again():
    def fail(name):
        if isinstance(name, str):
            raise Refused("no such bucket", code="NoSuchBucket")

    batch = Batch(Recorder(fail=fail))
    result = batch.process([*removals(2), *turns(1)])
    assert result.failed == ["1000", "1001"]
    assert result.snapshots_updated == 1


def test_events_for_which_no_time_is_left_are_delivered_again():
    batch = Batch()
    assert batch.process(removals(1), seconds=-1).failed == ["1000"]
    assert batch.calls.objects == {}


def test_failures_are_sorted_by_value_and_few_are_logged():
    def fail(body):
        if "TableName" in body:
            raise Throttled("too much")

    batch = Batch(Recorder(fail=fail))
    records = [bucket_record(turned(number), 10**20 - 30 + number) for number in range(60)]
    result = batch.process(records)
    assert [int(number) for number in result.failed] == [10**20 - 30 + n for n in range(60)]
    assert len(batch.lines) == 20


def test_the_lag_is_that_of_the_oldest_record():
    now = time.time()
    records = turns(2)
    for record, age_s in zip(records, (5, 60), strict=True):
        record["dynamodb"] = {**record["dynamodb"], "ApproximateCreationDateTime": now - age_s}
    assert 60_000 <= Batch().process(records).lag_ms < 70_000
    assert Batch().process([]).lag_ms == 0

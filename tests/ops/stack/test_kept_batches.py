"""Batches that Lambda has kept in the archive, and the settings that make Lambda keep them."""

import gzip
import json
from datetime import UTC, datetime

import pytest

from tests.support.dynamodb import Proxy
from tests.support.dynamodb.streams import removal_record
from tests.unit.aggregator.test_archive import expired
from zae_limiter.models.stack import StackOptions
from zae_limiter_ops._async.infra.kept_batches import KeptBatches as AsyncKeptBatches
from zae_limiter_ops._sync.infra.deployment import Deployment
from zae_limiter_ops.infra import names
from zae_limiter_ops.infra.aggregator import QUEUE
from zae_limiter_ops.infra.template import template
from zae_limiter_ops.transport.control import AControl

KEPT = "aws/lambda/0815/shardId-1/2026/01/31/2026-01-31T12.00.00-{}"


def removals(*numbers):
    """Return stream records of expired events."""
    return [removal_record(expired(number).item, 100 + number) for number in numbers]


@pytest.fixture
def archive(deployment):
    """Objects of the archive of a deployed stack, which is emptied after the test."""
    deployment.deploy(StackOptions())
    archive = Archive(deployment)
    yield archive
    for key in archive.keys(""):
        archive.call("delete_object", Key=key)


class Archive:
    def __init__(self, deployment):
        self._control = deployment.manager.control
        self._function = names.aggregator_function(deployment.name)
        self.bucket = deployment.manager.outputs()["ArchiveBucket"]

    def call(self, operation, **parameters):
        return self._control.call("s3", operation, Bucket=self.bucket, **parameters)

    def keys(self, prefix):
        listed = self.call("list_objects_v2", Prefix=prefix).get("Contents", [])
        return [each["Key"] for each in listed]

    def keep(self, name, payload):
        """Store a batch as Lambda does after its last attempt."""
        document = {
            "requestContext": {"condition": "MaxRecordAgeExceeded"},
            "version": "1.0",
            "timestamp": datetime.now(UTC).isoformat(),
            "DDBStreamBatchInfo": {"shardId": "shardId-1", "batchSize": 3},
            "payload": payload,
        }
        self.call("put_object", Key=KEPT.format(name), Body=json.dumps(document).encode())

    def event_ids(self):
        """Return the ids of all archived events, with those that are archived twice."""
        found = []
        for key in self.keys("audit/"):
            body = self._control.read_object(self.bucket, key)
            lines = gzip.decompress(body).decode().splitlines()
            found += [json.loads(line)["event_id"] for line in lines]
        return sorted(found)

    def deliver(self, records):
        """Invoke the aggregator as the event source does; return the failed records."""
        answer = self._control.invoke(self._function, {"Records": records})
        return [each["itemIdentifier"] for each in answer["batchItemFailures"]]

    def set_s3(self, url):
        """Let the function find S3 at an address."""
        current = self._control.call(
            "lambda", "get_function_configuration", FunctionName=self._function
        )
        variables = {**current["Environment"]["Variables"], "AWS_ENDPOINT_URL_S3": url}
        self._control.call(
            "lambda",
            "update_function_configuration",
            FunctionName=self._function,
            Environment={"Variables": variables},
        )


def event_source(deployment):
    (source,) = deployment.manager.control.call(
        "lambda",
        "list_event_source_mappings",
        FunctionName=names.aggregator_function(deployment.name),
    )["EventSourceMappings"]
    return source, source["DestinationConfig"]["OnFailure"]["Destination"]


def test_the_event_source_retries_by_age_and_keeps_failed_batches(place):
    body = template()
    # The local control plane does not know the partition in conditions.
    body["Conditions"]["KeepsBatches"]["Fn::And"][1] = {"Fn::Equals": ["aws", "aws"]}
    deployment = Deployment(*place, body=body)
    deployment.deploy(StackOptions())
    source, destination = event_source(deployment)
    assert source["MaximumRetryAttempts"] == -1
    assert source["MaximumRecordAgeInSeconds"] == 23 * 3600
    assert destination == f"arn:aws:s3:::{deployment.manager.outputs()['ArchiveBucket']}"
    pages = deployment.manager.control.pages(
        "cloudformation", "list_stack_resources", StackName=place[0]
    )
    deployed = [
        each["LogicalResourceId"] for page in pages for each in page["StackResourceSummaries"]
    ]
    assert QUEUE not in deployed
    assert "AggregatorDeadLetters" not in deployed
    deployment.close()


def test_where_lambda_cannot_keep_batches_the_queue_names_them(archive, deployment, command):
    """As outside of the standard regions; the local control plane has no standard region."""
    source, destination = event_source(deployment)
    assert source["MaximumRecordAgeInSeconds"] == 23 * 3600
    assert destination.startswith("arn:aws:sqs:")
    control = deployment.manager.control
    url = control.call("sqs", "get_queue_url", QueueName=destination.rpartition(":")[2])["QueueUrl"]
    control.call("sqs", "send_message", QueueUrl=url, MessageBody="{}")
    assert command("status", "--output", "json").json["details"]["dead_letters"] == 1


@pytest.mark.slow
def test_events_wait_for_the_end_of_a_fault_and_are_archived_once(archive, control_plane):
    records = removals(1, 2, 3)
    with Proxy(control_plane.url) as s3:
        archive.set_s3(s3.url)
        for kind in ("error_before", "error_after", "close"):  # one more attempt for each fault
            with s3.fault(kind):
                assert archive.deliver(records) == ["101", "102", "103"]
        assert archive.deliver(records) == []
        assert archive.deliver(records) == []  # a repeated delivery
    assert archive.event_ids() == ["01H0001", "01H0002", "01H0003"]


def test_kept_batches_are_shown_replayed_and_deleted(archive, command):
    archive.keep("a", {"Records": removals(1, 2)})
    archive.keep("b", json.dumps({"Records": removals(3)}))
    assert command("status", "--output", "json").json["details"]["dead_letters"] == 2
    planned = command("audit", "replay", "--dry-run", "--output", "json").json
    assert planned == {"batches": [KEPT.format("a"), KEPT.format("b")], "records": 0}
    assert archive.event_ids() == []
    replayed = command("audit", "replay", "--output", "json").json
    assert replayed == {"batches": [KEPT.format("a"), KEPT.format("b")], "records": 3}
    assert archive.event_ids() == ["01H0001", "01H0002", "01H0003"]
    assert archive.keys("aws/") == []
    assert command("audit", "replay").out == "no batch is kept\n"
    archive.keep("c", {"Records": removals(1, 2)})  # as if the first replay had not deleted it
    assert command("audit", "replay").out == f"replayed: {KEPT.format('c')}, 2 records\n"
    assert archive.event_ids() == ["01H0001", "01H0002", "01H0003"]


def test_a_batch_that_fails_again_stays(archive, command, control_plane):
    archive.keep("a", {"Records": removals(1, 2)})
    with Proxy(control_plane.url) as s3:
        archive.set_s3(s3.url)
        with s3.fault("error_before"):
            line = command("audit", "replay").error(1)
        assert "2 of 2 records of" in line
        assert "the batch is kept" in line
        assert archive.keys("aws/") == [KEPT.format("a")]
        assert command("audit", "replay").code == 0
    assert archive.event_ids() == ["01H0001", "01H0002"]


def test_an_object_that_is_no_batch_is_named(archive, command):
    for payload in (None, "{", [], {"Records": None, "x": 1}, "5"):
        archive.keep("a", payload)
        line = command("audit", "replay").error(1)
        assert f"{KEPT.format('a')} in {archive.bucket} is not a batch that Lambda has kept" in line


async def test_a_batch_that_is_too_large_for_a_call_is_divided(archive, place):
    records = removals(*range(1, 9))
    for record in records:  # 8 MB together
        record["dynamodb"]["OldImage"]["note"] = {"S": "x" * 1_000_000}
    archive.keep("a", {"Records": records})
    control = AControl(*place[1:])
    batches = AsyncKeptBatches(control, place[0], archive.bucket)
    assert await batches.replay(KEPT.format("a")) == 8
    control.close()
    assert len(archive.event_ids()) == 8


@pytest.mark.slow  # a page of S3 holds a thousand names
def test_every_page_of_kept_batches_is_listed(archive, command):
    for number in range(1001):
        archive.call("put_object", Key=KEPT.format(f"{number:04}"), Body=b"{}")
    listed = command("audit", "replay", "--dry-run", "--output", "json").json["batches"]
    assert listed == [KEPT.format(f"{number:04}") for number in range(1001)]
    while found := archive.keys("aws/"):
        for key in found:
            archive.call("delete_object", Key=key)


def test_without_an_archive_there_is_nothing_to_replay(deployment, command):
    deployment.deploy(StackOptions(enable_audit_archival=False))
    line = command("audit", "replay").error(1)
    assert "has no archive" in line
    assert command("status", "--output", "json").json["details"]["dead_letters"] == 0

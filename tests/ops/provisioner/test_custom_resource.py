"""CloudFormation is always answered, whatever happens; the ids of its resource are stable."""

import json

import pytest

from tests.ops.provisioner.invocations import Context, Inbox
from zae_limiter.exceptions import InfrastructureError
from zae_limiter_provisioner import actions, custom_resource, handler
from zae_limiter_provisioner.custom_resource import ResourceOutcome, ResourceRequest

MANIFEST = {"system": {"limits": {"rpm": 5}}}
STACK_ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/my-limits/0815"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A table that cannot be reached: nothing listens there."""
    monkeypatch.setenv("TABLE_NAME", "my-app")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


def event(inbox, kind="Create", **more):
    return {
        "RequestType": kind,
        "ResponseURL": inbox.url,
        "StackId": STACK_ID,
        "RequestId": "request-1",
        "LogicalResourceId": "Limits",
        "ResourceProperties": {"Manifest": MANIFEST},
        **more,
    }


def answer_of(inbox):
    ((path, content_type, answer),) = inbox.answers
    assert path == "/answer?Signature=a%2Bb"
    assert not content_type  # the address is signed without one
    assert (answer["StackId"], answer["RequestId"], answer["LogicalResourceId"]) == (
        STACK_ID,
        "request-1",
        "Limits",
    )
    return answer


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "manifest"),
        ({"Manifest": "{"}, "is not JSON"),
        ({"Manifest": "[" * 25_000}, "manifest: is nested more than 32 levels deep"),
        ({"Manifest": " " * 6_000_001}, "manifest: has more than 6,000,000 characters"),
        ({"Manifest": {"resourses": {}}}, "did you mean 'resources'?"),
        ({"Manifest": MANIFEST, "Name": "x"}, "use Manifest, Namespace, AllowDeletions"),
        ({"Manifest": {}}, "declares no setting"),
        ({"Manifest": MANIFEST, "AllowDeletions": "many"}, "AllowDeletions: must be a number"),
        (None, "manifest"),
    ],
)
def test_a_mistake_in_the_template_is_answered_and_nothing_is_to_be_deleted(
    inbox, properties, reason
):
    returned = handler(event(inbox, ResourceProperties=properties), Context(30))
    answer = answer_of(inbox)
    assert answer == returned
    assert answer["Status"] == "FAILED"
    assert reason in answer["Reason"]
    assert answer["PhysicalResourceId"] == "not-applied:my-app"
    deleted = event(inbox, "Delete", PhysicalResourceId=answer["PhysicalResourceId"])
    assert handler(deleted, Context(30))["Status"] == "SUCCESS"


def test_an_outage_is_answered(inbox):
    handler(event(inbox), Context(30))
    answer = answer_of(inbox)
    assert answer["Status"] == "FAILED"
    assert "127.0.0.1:9" in answer["Reason"]
    assert answer["PhysicalResourceId"] == "not-applied:my-app"


def test_a_failed_update_keeps_the_id_so_that_it_is_rolled_back(inbox):
    handler(event(inbox, "Update", PhysicalResourceId="limits:my-app:default"), Context(30))
    answer = answer_of(inbox)
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", "limits:my-app:default")


def test_it_is_answered_before_the_function_ends(inbox, monkeypatch):
    """The apply waits 10 s for a server that accepts connections and never answers."""
    with Inbox() as silent:  # listens, but nothing serves
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.server_address[1]}")
        handler(event(inbox), Context(1))
    answer = answer_of(inbox)
    assert answer["Status"] == "FAILED"
    assert "did not end in time" in answer["Reason"]


def test_an_answer_that_was_refused_is_sent_again(inbox):
    inbox.refusals = 2
    handler(event(inbox, "Delete", PhysicalResourceId="not-applied:my-app"), Context(30))
    assert answer_of(inbox)["Status"] == "SUCCESS"


def test_an_answer_that_cannot_be_sent_is_an_error_of_the_function():
    with pytest.raises(OSError, match="refused"):
        custom_resource.send("http://127.0.0.1:9/", {})


@pytest.mark.parametrize("character", ["x", "é", "\n", '"', "😀", "\ud800"])
def test_an_answer_fits_into_what_cloudformation_takes(inbox, character):
    """The whole answer has at most 4096 bytes, however a character is encoded."""
    request = ResourceRequest(event(inbox), "my-app")
    answer = request.answer(ResourceOutcome(False, character * 10_000))
    custom_resource.send(inbox.url, answer)
    assert 4096 - 12 < inbox.lengths[-1] <= 4096
    assert answer["Reason"]
    assert set(answer["Reason"]) == {character}
    assert request.answer(ResourceOutcome(False, "short"))["Reason"] == "short"


def test_payloads_of_the_command_line_are_told_apart():
    answer = handler({"action": "destroy", "manifest": {}}, Context(30))
    assert "must be one of plan, apply, diff" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({}, "manifest"),
        ({"manifest": []}, "must be a mapping"),
        ({"manifest": {}}, "declares no setting"),
        ({"manifest": MANIFEST, "principal": 5}, "principal"),
        ({"manifest": {"system": {"limits": {"rpm": "many"}}}}, "rpm"),
    ],
)
def test_a_wrong_payload_is_answered_before_the_table_is_asked(payload, reason):
    answer = handler({"action": "apply", **payload}, Context(30))
    assert reason in answer["error"]["message"]


DEEP = json.loads("[" * 900 + "]" * 900)
for _ in range(29_100):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "payload",
    [
        {"action": "plan", "manifest": {}, "namespace": DEEP},
        {"action": "plan", "manifest": DEEP},
        {"action": DEEP, "manifest": {}},
        {"action": "apply", "manifest": {}, "principal": DEEP},
        {"action": "apply", "manifest": {}, "revision": {"x": DEEP}},
        DEEP,
    ],
)
def test_a_payload_that_is_nested_too_deeply_is_refused(payload):
    answer = handler(payload, Context(30))
    assert answer["error"]["kind"] == "ValidationError"
    assert "payload: is nested more than 32 levels deep" in answer["error"]["message"]


@pytest.mark.parametrize(
    "place", ["ResourceProperties", "StackId", "PhysicalResourceId", "RequestId", "Namespace"]
)
def test_a_request_that_is_nested_too_deeply_is_refused_and_answered(inbox, place):
    properties = {"Manifest": {}, "Namespace": DEEP}
    more = {"ResourceProperties": properties} if place == "Namespace" else {place: DEEP}
    answer = handler(event(inbox, **more), Context(30))
    assert len(inbox.answers) == 1
    assert answer["Status"] == "FAILED"
    assert "request: is nested more than 32 levels deep" in answer["Reason"]


@pytest.mark.parametrize(
    "field",
    [
        {"namespace": ["default"]},
        {"namespace": 5},
        {"revision": 5},
        {"wait_seconds": "10"},
        {"seconds": -1},
        {"allow_deletions": -1},
        {"allow_deletions": 1.5},
        {"seconds": True},
        {"seconds": float("nan")},
    ],
)
def test_a_field_of_another_type_is_refused(field):
    answer = handler({"action": "apply", "manifest": MANIFEST, **field}, Context(30))
    (name,) = field
    assert answer["error"]["message"].startswith(f"{name}: must be ")


@pytest.mark.parametrize(
    ("counts", "made"), [({"create": 40_000}, False), ({"created": 40_000}, True)]
)
def test_an_answer_that_lambda_would_not_pass_on_says_what_helps(counts, made):
    change = {"action": "create", "kind": "entity_limits", "entity_id": "x" * 100}
    actions.refuse_large({**counts, "changes": [change] * 30_000})
    with pytest.raises(InfrastructureError, match="divide the manifest, or use --direct") as caught:
        actions.refuse_large({**counts, "changes": [change] * 40_000})
    assert ("changes were made" in str(caught.value)) is made


def test_a_payload_that_is_no_mapping_is_refused():
    assert "payload: must be a mapping" in handler([1], Context(30))["error"]["message"]

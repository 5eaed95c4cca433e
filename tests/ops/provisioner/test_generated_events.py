"""Whatever an event contains, the function answers it in the documented form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zae_limiter_contract.stopwatch import Stopwatch

from tests.ops.provisioner.invocations import Context
from tests.support.generated import examples, spoiled, texts
from zae_limiter.clock import Deadline
from zae_limiter_provisioner import actions, handler
from zae_limiter_provisioner.custom_resource import MAX_ANSWER_BYTES

SECRET = "zael-secret"
ANSWERED_WITHIN_S = 5
LEVELS = 600  # that JSON can have and Lambda passes on
KEYS = [
    "Manifest",
    "Namespace",
    "ServiceToken",
    "namespace",
    "resources",
    "limits",
    "rpm",
    "system",
]
TEXTS = texts(["default", "limits:my-app:default", "not-applied:my-app", "arn:a/b/c", "{}", "[[["])
DEEP = json.loads('{"a":' * LEVELS + "1" + "}" * LEVELS)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.just(DEEP),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
MANIFESTS = st.sampled_from(
    [
        {"namespace": "default", "system": {"limits": {"rpm": {"capacity": 5}}}},
        '{"resources": {"api": {"limits": {"rpm": 5}}}}',
        {"namespace": "other"},
        "[" * 5_000,
        "9" * 5_000,
    ]
)
PROPERTIES = st.fixed_dictionaries(
    {"Manifest": MANIFESTS | VALUES, "Namespace": st.sampled_from(["default", "other"]) | VALUES}
)
EVENTS = spoiled(
    st.fixed_dictionaries(
        {
            "RequestType": st.sampled_from(["Create", "Update", "Delete"]) | VALUES,
            "StackId": st.just("arn:aws:cloudformation:us-east-1:123456789012:stack/my/0815"),
            "RequestId": st.just("request-1"),
            "LogicalResourceId": st.just("Limits"),
            "PhysicalResourceId": st.sampled_from(["limits:my-app:default", "not-applied:my-app"]),
            "ResourceProperties": PROPERTIES | VALUES,
        }
    ),
    st.sampled_from(["StackId", "RequestId", "PhysicalResourceId", "ResourceProperties"]),
    VALUES,
)
PAYLOADS = spoiled(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(["plan", "apply", "diff"]),
            "manifest": MANIFESTS | VALUES,
            "namespace": st.sampled_from(["default", None]),
            "principal": st.just("me"),
            "revision": st.just("abc"),
            "seconds": st.just(0.1),
            "wait_seconds": st.just(0),
        }
    ),
    st.sampled_from(["action", "namespace", "principal", "revision", "seconds", "wait_seconds"]),
    VALUES,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A table that cannot be reached, and a credential that no answer may contain."""
    monkeypatch.setenv("TABLE_NAME", "my-app")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@examples(100)
@given(event=EVENTS)
def test_cloudformation_is_answered(inbox, event):
    with Stopwatch() as watch:
        handler({**event, "ResponseURL": inbox.url}, Context(2))
    assert watch.within(ANSWERED_WITHIN_S), watch
    [(_, _, answer)] = inbox.answers
    [length] = inbox.lengths
    inbox.answers.clear()
    inbox.lengths.clear()
    assert length <= MAX_ANSWER_BYTES
    assert SECRET not in repr(answer)
    is_nothing_to_delete = answer["Reason"] == "nothing was applied"
    # Nothing listens where the table should be.
    assert answer["Status"] == ("SUCCESS" if is_nothing_to_delete else "FAILED")
    assert answer["Reason"]
    assert answer["PhysicalResourceId"]
    assert answer["Data"] == {}
    assert all(isinstance(value, str) for name, value in answer.items() if name != "Data")


@examples(100)
@given(payload=PAYLOADS | VALUES)
def test_a_payload_is_answered_with_an_error(payload):
    with Stopwatch() as watch:
        answer = actions.answer(payload, "my-app", Deadline(1))
    assert watch.within(ANSWERED_WITHIN_S), watch
    assert set(answer) == {"error"}
    assert answer["error"]["message"]
    assert SECRET not in json.dumps(answer)

"""What a call makes of what the server does, in both trees."""

import json
import pickle
import time
from contextlib import suppress

import pytest
from zae_limiter_contract.stopwatch import Stopwatch

from tests.integration.transport import scripted
from tests.integration.transport.scripted import Script, refuse
from zae_limiter.clock import Deadline, ServerClock
from zae_limiter.exceptions import (
    InfrastructureError,
    InfrastructureNotFoundError,
    PermissionDenied,
    RateLimiterUnavailable,
    ValidationError,
)
from zae_limiter.store_errors import ConditionFailed, NoAnswer, NotSent, ServerFault, Throttled
from zae_limiter.transport.errors import Refused, TransactionCanceled

KEY = {"Key": {"PK": {"S": "one"}}}
CANCELED = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
BUSY = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "TransactionConflictException",
]


def cancelled(*codes):
    reasons = [{"Code": code} for code in codes]
    return scripted.answer({"__type": CANCELED, "CancellationReasons": reasons}, 400)


# --- the request


def test_the_tables_name_is_added_where_it_belongs(open_client):
    with Script(scripted.answer({"Responses": {}})) as server:
        client = open_client(server.url, "some-table-name")
        client.call("GetItem", KEY)
        client.call("GetItem", {**KEY, "TableName": "another-table"})
        client.call("BatchGetItem", {"RequestItems": {}})
    bodies = [json.loads(body) for _, body in server.seen]
    assert [body.get("TableName") for body in bodies] == ["some-table-name", "another-table", None]
    assert server.seen[0][0]["x-amz-target"] == "DynamoDB_20120810.GetItem"
    assert server.connections == 1


def test_text_of_any_kind_arrives(open_client):
    with Script(scripted.echo) as server:
        body = {"Key": {"PK": {"S": 'ü☃𝄞\x00"\\'}}}
        assert open_client(server.url).call("GetItem", body)["Key"] == body["Key"]


def test_what_is_no_json_cannot_be_sent(open_client):
    with Script(scripted.echo) as server, pytest.raises(TypeError):
        open_client(server.url).call("GetItem", {"Key": object()})
    assert server.seen == []


# --- answers that are final


def test_a_failed_condition_brings_the_item(open_client):
    item = {"PK": {"S": "one"}, "n": {"N": "7"}}
    content = {"__type": "x#ConditionalCheckFailedException", "message": "no", "Item": item}
    with Script(scripted.answer(content, 400)) as server, pytest.raises(ConditionFailed) as caught:
        open_client(server.url).call("UpdateItem", KEY)
    assert caught.value.item == item
    assert pickle.loads(pickle.dumps(caught.value)).item == item
    assert len(server.seen) == 1


def test_a_cancelled_transaction_tells_why_action_by_action(open_client):
    item = {"PK": {"S": "one"}}
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Item": item, "Message": "no"},
        {"Code": "TransactionConflict"},
    ]
    content = {"__type": CANCELED, "message": "cancelled", "CancellationReasons": reasons}
    step = scripted.answer(content, 400)
    with Script(step) as server, pytest.raises(TransactionCanceled) as caught:
        open_client(server.url).call("TransactWriteItems", {"TransactItems": []})
    found = [(reason.code, reason.item) for reason in caught.value.reasons]
    expected = [("None", None), ("ConditionalCheckFailed", item), ("TransactionConflict", None)]
    assert found == expected
    assert pickle.loads(pickle.dumps(caught.value)).reasons == caught.value.reasons
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        (refuse("ResourceNotFoundException"), InfrastructureNotFoundError, "some-table-name"),
        (refuse("ValidationException", "no such thing"), Refused, "no such thing"),
        (refuse("SerializationException"), Refused, "SerializationException"),
        (refuse("AccessDeniedException", "not you"), PermissionDenied, "not you.*IAM"),
        (refuse("MissingAuthenticationTokenException"), PermissionDenied, "credentials"),
        (refuse("IncompleteSignature"), PermissionDenied, "credentials"),
        (refuse("InvalidSignatureException", "does not match"), PermissionDenied, "match"),
        (scripted.answer({}, 403), PermissionDenied, "403"),
        (scripted.raw(scripted.message(b"<html>", 403)), PermissionDenied, "403"),
        (scripted.raw(scripted.message(b"<html>", 404)), Refused, "endpoint_url"),
        (scripted.raw(scripted.message(b"", 302)), Refused, "endpoint_url"),
        (cancelled("None", "ConditionalCheckFailed"), TransactionCanceled, "cancelled"),
    ],
)
def test_what_trying_again_cannot_change_is_asked_once(open_client, step, kind, words):
    with Script(step) as server, pytest.raises(kind, match=words):
        open_client(server.url).call("GetItem", KEY)
    assert len(server.seen) == 1


def test_a_refusal_is_never_an_outage(open_client):
    for step in (refuse("AccessDeniedException"), refuse("ValidationException")):
        with Script(step) as server, pytest.raises(InfrastructureError) as caught:
            open_client(server.url).call("GetItem", KEY)
        assert not isinstance(caught.value, RateLimiterUnavailable)


# --- what is tried again


@pytest.mark.parametrize("code", BUSY)
def test_what_was_throttled_is_tried_again(open_client, code):
    with Script(refuse(code), refuse(code), scripted.answer()) as server:
        assert open_client(server.url).call("UpdateItem", KEY) == scripted.OK
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    "codes",
    [("TransactionConflict",), ("None", "ThrottlingError", "ProvisionedThroughputExceeded")],
)
def test_a_transaction_that_only_met_another_is_tried_again(open_client, codes):
    with Script(cancelled(*codes), scripted.answer()) as server:
        assert open_client(server.url).call("TransactWriteItems", {}) == scripted.OK
    assert len(server.seen) == 2


def test_throttling_without_end_is_given_up_in_time(open_client):
    with Script(refuse("ThrottlingException", "slow down")) as server:
        client = open_client(server.url, request_timeout=1.5)
        with Stopwatch() as watch, pytest.raises(Throttled, match="slow down") as caught:
            client.call("UpdateItem", KEY)
        assert watch.within(1.5)
    assert caught.value.code == "ThrottlingException"
    assert 3 <= len(server.seen) <= 60
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), Throttled)


def test_a_read_is_tried_again_whatever_happened(open_client):
    steps = (
        refuse("InternalServerError", status=500),
        scripted.reset_after_reading,
        scripted.raw(scripted.message(b"<html>", 503)),
        scripted.raw(scripted.message(b"{}", crc=1)),
        scripted.answer(),
    )
    with Script(*steps) as server:
        assert open_client(server.url).call("GetItem", KEY) == scripted.OK
    assert len(server.seen) == 5


def test_a_read_that_hangs_leaves_time_for_another(open_client):
    with Script(scripted.hang_after_reading, scripted.answer()) as server:
        client = open_client(server.url, request_timeout=3)
        assert client.call("GetItem", KEY) == scripted.OK


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (refuse("InternalServerError", status=500), ServerFault),
        (scripted.raw(scripted.message(b"<html>", 502)), ServerFault),
        (scripted.raw(scripted.message(b"<html>", 200)), ServerFault),
        (scripted.reset_after_reading, NoAnswer),
        (scripted.close_after_reading, NoAnswer),
        (scripted.hang_after_reading, NoAnswer),
        (scripted.raw(scripted.message(b"{}", crc=1)), NoAnswer),
    ],
)
def test_a_write_in_doubt_is_never_sent_twice(open_client, step, kind):
    with Script(step) as server, pytest.raises(kind) as caught:
        open_client(server.url, request_timeout=2).call("UpdateItem", KEY)
    assert len(server.seen) == 1
    assert type(pickle.loads(pickle.dumps(caught.value))) is kind


@pytest.mark.parametrize(
    "step", [refuse("InternalServerError", status=500), scripted.reset_after_reading]
)
def test_a_write_that_may_be_repeated_is(open_client, step):
    with Script(step, step, scripted.answer()) as server:
        client = open_client(server.url)
        assert client.call("TransactWriteItems", {}, repeatable=True) == scripted.OK
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (scripted.reset_after_reading, NoAnswer),
        (refuse("InternalServerError", status=500), ServerFault),
        (refuse("TransactionInProgressException"), NoAnswer),
    ],
)
def test_a_doubt_is_not_forgotten_when_the_repetition_is_refused(open_client, first, kind):
    with Script(first, refuse("ThrottlingException")) as server, pytest.raises(kind):
        open_client(server.url, request_timeout=1).call("TransactWriteItems", {}, repeatable=True)
    assert len(server.seen) > 1


def test_a_missing_server_is_told_at_once(open_client):
    with Script(scripted.answer()) as server:
        pass
    with Stopwatch() as watch, pytest.raises(NotSent, match="no connection to"):
        open_client(server.url).call("UpdateItem", KEY)
    assert watch.within(0.5)  # its timeout is 2 s


# --- time


def test_without_time_nothing_is_sent(open_client):
    with Script(scripted.answer()) as server, pytest.raises(NotSent, match="no time"):
        open_client(server.url).call("GetItem", KEY, deadline=Deadline(0))
    assert server.seen == []


@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
@pytest.mark.parametrize(
    "step",
    [
        scripted.hang_before_reading,
        scripted.hang_after_reading,
        scripted.dripping(scripted.message(b"x" * 50), 20),
        scripted.dripping(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100, 20),
        refuse("ThrottlingException"),
        scripted.reset_after_reading,
        refuse("InternalServerError", status=500),
    ],
)
def test_an_outage_is_decided_in_time(open_client, step, operation):
    with Script(step) as server:
        client = open_client(server.url, request_timeout=0.5)
        with Stopwatch() as watch, pytest.raises(RateLimiterUnavailable):
            client.call(operation, KEY)
        assert watch.within(0.5)


def test_the_default_is_two_seconds(open_client):
    with Script(scripted.hang_after_reading) as server:
        client = open_client(server.url)
        with Stopwatch() as watch, pytest.raises(NoAnswer):
            client.call("UpdateItem", KEY)
        assert watch.seconds > 1.9
        assert watch.within(2)


@pytest.mark.parametrize("seconds", [0, -1, "2", None, True, float("inf"), float("nan")])
def test_a_timeout_must_be_a_time(open_client, seconds):
    with pytest.raises(ValidationError, match="request_timeout"):
        open_client("http://localhost:1", request_timeout=seconds)


# --- clocks


def test_a_signature_that_is_off_is_made_again_by_the_servers_time(open_client):
    date = "Thu, 02 Jan 2031 03:04:05 GMT"
    skewed = refuse("InvalidSignatureException", "Signature expired: x is now earlier", date=date)
    with Script(skewed, scripted.answer(date=date)) as server:
        client = open_client(server.url)
        assert client.call("UpdateItem", KEY) == scripted.OK
        assert client.call("UpdateItem", KEY) == scripted.OK
    dates = [headers["x-amz-date"] for headers, _ in server.seen]
    assert len(dates) == 3
    assert [date[:13] for date in dates[1:]] == ["20310102T0304"] * 2


@pytest.mark.parametrize("date", ["Thu, 02 Jan 2031 03:04:05 GMT", None, "yesterday"])
def test_a_signature_that_stays_off_is_a_refusal(open_client, date):
    step = refuse("RequestTimeTooSkewed", date=date)
    with Script(step) as server, pytest.raises(PermissionDenied, match="set the clock"):
        open_client(server.url).call("UpdateItem", KEY)
    assert len(server.seen) == (2 if date and date.endswith("GMT") else 1)


FAR_OFF = "Thu, 02 Jan 2031 03:04:05 GMT"
FAR_OFF_MS = 1_925_089_445_000
GATEWAY_PAGE = b"<html><body>503 Service Unavailable</body></html>"


def test_a_clock_hears_what_the_server_says(open_client):
    with Script(scripted.answer(date=FAR_OFF, x_amzn_requestid="A1")) as server:
        clock = ServerClock()
        client = open_client(server.url, server_clock=clock)
        client.call("GetItem", KEY)
        client.call("GetItem", KEY)
    assert 0 <= clock() - FAR_OFF_MS < 60_000


def test_a_clock_hears_refusals_of_the_server(open_client):
    refusal = refuse("ConditionalCheckFailedException", date=FAR_OFF, x_amzn_requestid="A1")
    with Script(refusal) as server:
        clock = ServerClock()
        client = open_client(server.url, server_clock=clock)
        for _ in range(2):
            with pytest.raises(ConditionFailed):
                client.call("UpdateItem", KEY)
    assert 0 <= clock() - FAR_OFF_MS < 60_000


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(scripted.answer(date="yesterday", x_amzn_requestid="A1"), id="no date"),
        pytest.param(scripted.answer(date=FAR_OFF), id="no request id"),
        pytest.param(refuse("ThrottlingException", date=FAR_OFF), id="refusal without request id"),
        pytest.param(
            scripted.answer({"message": "no"}, 400, date=FAR_OFF, x_amzn_requestid="A1"),
            id="refusal without type",
        ),
        pytest.param(
            scripted.raw(scripted.message(GATEWAY_PAGE, 503, date=FAR_OFF)), id="page of a gateway"
        ),
        pytest.param(
            scripted.raw(scripted.message(GATEWAY_PAGE, 200, date=FAR_OFF, x_amzn_requestid="A1")),
            id="page with 200",
        ),
    ],
)
def test_what_is_not_dynamodbs_own_answer_does_not_set_the_clock(open_client, step):
    with Script(step) as server:
        clock = ServerClock()
        client = open_client(server.url, server_clock=clock, request_timeout=0.3)
        for _ in range(3):
            with suppress(Exception):
                client.call("GetItem", KEY)
    assert abs(clock() - time.time() * 1000) < 1000


# --- secrets


def test_secrets_are_shown_nowhere(open_client, monkeypatch, caplog):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "HUSHHUSHHUSH")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TOKENTOKENTOKEN")
    caplog.set_level("DEBUG")
    steps = (refuse("UnrecognizedClientException"), scripted.reset_after_reading)
    texts = []
    for step in (*steps, scripted.hang_after_reading, refuse("ThrottlingException")):
        with Script(step) as server, pytest.raises(InfrastructureError) as caught:
            open_client(server.url, request_timeout=0.2).call("UpdateItem", KEY)
        texts += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    client = open_client("http://localhost:1").client
    texts += [repr(client), repr(vars(client)), repr(vars(client._access_source)), caplog.text]  # noqa: SLF001
    assert not any("HUSH" in text or "TOKEN" in text for text in texts)

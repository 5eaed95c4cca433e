import json

import pytest

from zae_limiter.store_errors import ServerFault, Throttled
from zae_limiter.transport.errors import Denied, Refused, TransactionCanceled
from zae_limiter.transport.messages import HttpResponse
from zae_limiter.transport.responses import date_ms, parse_response


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("Sun, 15 Nov 2026 09:29:44 GMT", 1_794_734_984_000),
        ("Sunday, 15-Nov-26 09:29:44 GMT", 1_794_734_984_000),
        ("Sun Nov 15 09:29:44 2026", 1_794_734_984_000),
        ("Sun, 15 Nov 2026 10:29:44 +0100", 1_794_734_984_000),
        ("yesterday", None),
        ("", None),
        ("Sun, 99 Nov 2026 09:29:44 GMT", None),
        ("Sun, 15 Nov 99999 09:29:44 GMT", None),
    ],
)
def test_dates(text, ms):
    assert date_ms(text) == ms


@pytest.mark.parametrize(
    "name",
    [
        "com.amazonaws.dynamodb.v20120810#ThrottlingException",
        "com.amazon.coral.availability#ThrottlingException",
        "ThrottlingException",
        "ThrottlingException:http://internal.amazon.com/coral/com.amazon.coral.availability/",
    ],
)
def test_the_name_of_an_error_has_several_forms(name):
    body = b'{"__type": "%s"}' % name.encode()
    with pytest.raises(Throttled) as caught:
        parse_response(HttpResponse(400, {}, body), "GetItem", "table")
    assert caught.value.code == "ThrottlingException"
    with pytest.raises(Throttled):
        parse_response(HttpResponse(400, {"x-amzn-errortype": name}, b""), "GetItem", "table")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"[]", ServerFault),
        (200, b"", ServerFault),
        (200, b"\xff\xfe", ServerFault),
        (400, b"", Refused),
        (408, b"", ServerFault),
        (413, b"<html>", Refused),
        (429, b"", Throttled),
        (401, b"", Denied),
        (403, b"[1]", Denied),
        (500, b'{"__type": "x#ResourceNotFoundException"}', ServerFault),
        (503, b"", ServerFault),
        (400, b'{"__type": 7, "message": {"a": 1}}', Refused),
        (400, b'{"__type": "x#TransactionCanceledException"}', TransactionCanceled),
    ],
)
def test_answers_of_any_form_mean_something(status, body, kind):
    with pytest.raises(kind):
        parse_response(HttpResponse(status, {}, body), "GetItem", "table")


def test_reasons_that_stand_in_the_message_only_are_found():
    said = "Transaction cancelled, please refer to [None, ConditionalCheckFailed]"
    body = json.dumps({"__type": "x#TransactionCanceledException", "message": said}).encode()
    with pytest.raises(TransactionCanceled) as caught:
        parse_response(HttpResponse(400, {}, body), "TransactWriteItems", "table")
    assert [one.code for one in caught.value.reasons] == ["None", "ConditionalCheckFailed"]
    body = body.replace(b"ConditionalCheckFailed", b"TransactionConflict")
    with pytest.raises(Throttled, match="TransactionConflict"):
        parse_response(HttpResponse(400, {}, body), "TransactWriteItems", "table")


def test_a_long_message_is_cut():
    body = b'{"__type": "x#ValidationException", "message": "%s"}' % (b"x" * 10_000)
    with pytest.raises(Refused) as caught:
        parse_response(HttpResponse(400, {}, body), "GetItem", "table")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("code", "reasons", "of_item"),
    [
        ("ThrottlingException", None, True),
        ("ProvisionedThroughputExceededException", None, True),
        (
            "ThrottlingException",
            {"throttlingReasons": ["TableWriteKeyRangeThroughputExceeded"]},
            True,
        ),
        (
            "ProvisionedThroughputExceededException",
            {"ThrottlingReasons": ["TableWriteProvisionedThroughputExceeded"]},
            False,
        ),
        ("ThrottlingException", {"throttlingReasons": ["TableWriteAccountLimitExceeded"]}, False),
        ("RequestLimitExceeded", None, False),
        ("TransactionConflictException", None, False),
    ],
)
def test_a_refusal_for_throughput_says_whether_the_item_may_be_hot(code, reasons, of_item):
    content = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}"}
    for name, listed in (reasons or {}).items():
        content[name] = [{"reason": reason, "resource": "arn:aws:x"} for reason in listed]
    with pytest.raises(Throttled) as caught:
        parse_response(HttpResponse(400, {}, json.dumps(content).encode()), "UpdateItem", "table")
    assert caught.value.of_item is of_item

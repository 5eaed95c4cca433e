"""Answers of any form: a result of the right form, or an error that says what is known."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.exceptions import IncompatibleSchemaError, ZAELimiterError
from zae_limiter.items.stored.bucket import decode
from zae_limiter.items.stored.values import is_item
from zae_limiter.store_errors import ConditionFailed, NoAnswer, ServerFault, Throttled
from zae_limiter.transport.errors import TransactionCanceled
from zae_limiter.transport.messages import HttpResponse
from zae_limiter.transport.responses import parse_response
from zae_limiter.transport.shapes import has_shape

OPERATIONS = (
    "BatchGetItem", "BatchWriteItem", "DescribeTable", "GetItem", "PutItem", "Query", "Scan",
    "TransactGetItems", "TransactWriteItems", "UpdateItem",
)  # fmt: skip
FIELDS = (
    "Attributes", "CancellationReasons", "Code", "Item", "Items", "LastEvaluatedKey", "Message",
    "Responses", "S", "N", "M", "L", "SS", "BOOL", "Table", "ThrottlingReasons", "UnprocessedKeys",
    "UnprocessedItems", "__type", "code", "lh", "message", "n", "op", "reason", "t_rpm", "table",
)  # fmt: skip
CODES = (
    "ConditionalCheckFailedException", "TransactionCanceledException", "ThrottlingException",
    "AccessDeniedException", "InternalServerError", "ResourceNotFoundException", "Nonsense",
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(CODES),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
contents = st.dictionaries(st.sampled_from(FIELDS), values, max_size=4) | values
KNOWN = (ZAELimiterError, ConditionFailed, TransactionCanceled)


def deep(levels):
    return b'{"Item":' + b'{"M":{"x":' * levels + b"1" + b"}}" * levels + b"}"


def parsed(status, body, operation):
    try:
        return parse_response(HttpResponse(status, {}, body), operation, "table")
    except KNOWN as error:
        return error


@given(
    st.sampled_from((200, 200, 400, 403, 408, 413, 429, 500, 503)),
    contents,
    st.sampled_from(OPERATIONS),
)
@example(400, {"__type": "TransactionCanceledException", "CancellationReasons": 1}, "UpdateItem")
@example(400, {"__type": "TransactionCanceledException", "CancellationReasons": [1]}, "UpdateItem")
@example(400, {"__type": "ThrottlingException", "ThrottlingReasons": ["x"]}, "UpdateItem")
@example(400, {"__type": "ConditionalCheckFailedException", "Item": {"op": 5}}, "UpdateItem")
@example(200, {"Item": {"op": {"N": "x"}}}, "GetItem")
def test_any_content_is_of_the_right_form_or_a_known_error(status, content, operation):
    outcome = parsed(status, json.dumps(content).encode(), operation)
    if isinstance(outcome, ConditionFailed):
        # Its attributes are looked at when it is decoded, as after a write.
        assert outcome.item is None or isinstance(outcome.item, dict)
    elif isinstance(outcome, dict):
        assert operation == "UpdateItem" or has_shape(operation, outcome)


@given(st.binary(max_size=200), st.sampled_from(OPERATIONS))
def test_any_bytes_are_no_answer_of_a_successful_call(body, operation):
    outcome = parsed(200, body, operation)
    assert isinstance(outcome, dict | NoAnswer | ServerFault)


@pytest.mark.parametrize("levels", [100, 900, 100_000])
@pytest.mark.parametrize("operation", ["GetItem", "UpdateItem"])
def test_nesting_without_end_is_a_fault_of_the_server(levels, operation):
    outcome = parsed(200, deep(levels), operation)
    assert isinstance(outcome, ServerFault) or operation == "UpdateItem"
    assert isinstance(parsed(400, deep(levels), operation), ZAELimiterError)


@given(values)
@example({"op": {"S": "x"}, "lh": 5})
@example([])
@example({"t_rpm": {"N": "1"}, "p_rpm": {"S": 5}})
def test_an_item_of_any_form_is_decoded_or_a_known_error(item):
    try:
        decode(item)
    except ServerFault:
        assert not is_item(item)
    except IncompatibleSchemaError:
        assert is_item(item)


@pytest.mark.parametrize(
    ("reason", "of_item"),
    [
        ("TableWriteKeyRangeThroughputExceeded", True),
        ("IndexWriteKeyRangeThroughputExceeded", False),
        ("TableWriteProvisionedThroughputExceeded", False),
    ],
)
def test_only_a_hot_partition_of_the_table_may_be_a_hot_item(reason, of_item):
    content = {"__type": "ThrottlingException", "ThrottlingReasons": [{"reason": reason}]}
    error = parsed(400, json.dumps(content).encode(), "UpdateItem")
    assert isinstance(error, Throttled)
    assert error.of_item is of_item

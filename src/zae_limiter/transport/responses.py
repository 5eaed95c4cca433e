"""What a response of DynamoDB means: its content, or one of the errors in ``refusals``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from json.scanner import make_scanner
from typing import Any
from zlib import crc32

from zae_limiter.transport.errors import ConditionFailed, NoAnswer
from zae_limiter.transport.messages import HttpResponse

_CONDITION_FAILED = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
# A header of DynamoDB's own responses.
REQUEST_ID = "x-amzn-requestid"
# `json.loads` also looks for blanks around the document, which takes as long as to parse it.
_scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type] # what `raw_decode` calls


def parse_response(response: HttpResponse, operation: str, table: str) -> dict[str, Any]:
    """Return the content of a successful response; raises the error that any other one means."""
    status, headers, body, _, _ = response
    expected = headers.get("x-amz-crc32")
    if expected is not None and expected != str(crc32(body)):
        raise NoAnswer(f"DynamoDB's answer to {operation} was damaged on its way")
    try:
        text = body.decode()
        content, end = _scan(text, 0)
        if end != len(text):
            content = json.loads(text)
        if type(content) is not dict:
            content = {}
        elif status == 200:
            # The item after a write is looked at by `decode` only if it cannot be decoded.
            if operation == "UpdateItem" and "Attributes" in content:
                return content
            if not _is_foreign(content, headers) and has_shape(operation, content):
                return content
            content = {}
        elif content.get("__type") == _CONDITION_FAILED and type(content.get("Item")) is dict:
            raise ConditionFailed(content["Item"])  # the usual error
    except (ValueError, RecursionError, StopIteration):  # not JSON, or nested without end
        content = {}
    # Without a name: an error that its own frame refers to is garbage for the collector.
    raise _any_error_of(response, content, operation, table)


def _any_error_of(
    response: HttpResponse, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    from zae_limiter.transport.refusals import error_of  # most requests succeed

    try:
        return error_of(response, content, operation, table)
    except RecursionError:  # nested without end
        return error_of(response, {}, operation, table)


def has_error_of_dynamodb(response: HttpResponse) -> bool:
    """Whether a response other than 200 is DynamoDB's own, not one of a gateway before it."""
    body = response.body
    return REQUEST_ID in response.headers and body.startswith(b"{") and b'"__type"' in body


# --- the forms of content; what is of another form is no answer of DynamoDB


def has_shape(operation: str, content: Mapping[str, Any]) -> bool:
    """Whether a successful response has the form that the operation's callers rely on."""
    return all(is_valid(content.get(name)) for name, is_valid in _SHAPES.get(operation, {}).items())


def _is_foreign(content: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    """Whether another server than DynamoDB has answered, such as a portal that wants a login.

    Fields that are not known are accepted from DynamoDB itself, which names the request.
    """
    return bool(content) and content.keys().isdisjoint(_FIELDS) and REQUEST_ID not in headers


def is_item(value: object) -> bool:
    """Whether it is an item in DynamoDB's JSON: ``{"name": {"S": "text"}, …}``."""
    return isinstance(value, dict) and all(map(_is_attribute, value.values()))


def _is_attribute(value: object) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    is_valid = _KINDS.get(kind)
    return is_valid is not None and is_valid(content)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, str) and _number().fullmatch(value) is not None


@cache  # compiled for the first item that is read: writes need it not
def _number() -> re.Pattern[str]:
    return re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_list(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(is_valid, value))


def _is_dict(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_valid, value.values()))


def _is_optional_item(value: object) -> bool:
    return value is None or is_item(value)


def _are_items(value: object) -> bool:
    return _is_list(value, is_item)


def _is_unread(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("Keys"), list)


def are_reasons(value: object) -> bool:
    """Whether it is a list of reasons for the actions of a transaction."""
    return _is_list(value, _is_reason)


def _is_reason(value: object) -> bool:
    return isinstance(value, dict) and _is_optional_item(value.get("Item"))


def _optional(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_valid(value)


_KINDS: dict[str, Callable[[object], bool]] = {
    "S": _is_text,
    "N": _is_number,
    "B": _is_text,
    "BOOL": _is_bool,
    "NULL": _is_bool,
    "SS": partial(_is_list, is_valid=_is_text),
    "NS": partial(_is_list, is_valid=_is_number),
    "BS": partial(_is_list, is_valid=_is_text),
    "L": partial(_is_list, is_valid=_is_attribute),
    "M": is_item,
}
_PAGE: dict[str, Callable[[object], bool]] = {
    "Items": _are_items,
    "LastEvaluatedKey": _is_optional_item,
}
# All fields of the answers of the operations below and of those that change tables.
_FIELDS = frozenset(
    {
        "Attributes",
        "ConsumedCapacity",
        "Count",
        "Item",
        "ItemCollectionMetrics",
        "Items",
        "LastEvaluatedKey",
        "Responses",
        "ScannedCount",
        "Table",
        "TableDescription",
        "TableNames",
        "TimeToLiveDescription",
        "TimeToLiveSpecification",
        "UnprocessedItems",
        "UnprocessedKeys",
    }
)
_SHAPES: dict[str, dict[str, Callable[[object], bool]]] = {
    "BatchGetItem": {
        "Responses": partial(_is_dict, is_valid=_are_items),
        "UnprocessedKeys": _optional(partial(_is_dict, is_valid=_is_unread)),
    },
    "BatchWriteItem": {
        "UnprocessedItems": _optional(
            partial(_is_dict, is_valid=lambda value: isinstance(value, list))
        ),
    },
    "DescribeTable": {"Table": lambda value: isinstance(value, dict) and "TableStatus" in value},
    "GetItem": {"Item": _is_optional_item},
    "Query": _PAGE,
    "Scan": _PAGE,
    "TransactGetItems": {"Responses": partial(_is_list, is_valid=_is_reason)},
}


@lru_cache(maxsize=8)  # parsed once: front ends differ by a second at most
def date_ms(text: str) -> int | None:
    """Convert an HTTP Date to epoch milliseconds; None if it is not one."""
    from email.utils import parsedate_to_datetime  # a tenth of a cold start that needs no clock

    try:
        return int(parsedate_to_datetime(text).timestamp()) * 1000
    except (ValueError, OverflowError):
        return None

"""What a response of DynamoDB means: its content, or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

from zae_limiter.exceptions import InfrastructureNotFoundError
from zae_limiter.transport.errors import (
    ConditionFailed,
    Denied,
    NoAnswer,
    Reason,
    Refused,
    ServerFault,
    Throttled,
    TransactionCanceled,
)
from zae_limiter.transport.messages import HttpResponse

# Codes of requests that were not carried out and succeed later.
THROTTLED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# Codes that may be due to a single hot item; the others concern the table or the account.
ITEM_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException"})
THROTTLED_REASONS = frozenset(
    {"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"}
)
# How the names of throttling reasons end if one partition is the cause, not the table's limit.
_HOT_PARTITION = "KeyRangeThroughputExceeded"
# How they begin if that partition is one of an index: its keys are shared by many items, so that
# splitting the bucket that was just written would not help.
_OF_INDEX = "Index"
DENIED = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_BAD_CREDENTIALS = frozenset(
    {"ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)
_WRONG_TIME = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
_NO_PERMISSION = frozenset({"AccessDeniedException", "NotAuthorized"})
_ADVICE = {
    "clock": "set the clock of this machine",
    "credentials": "renew the AWS credentials",
    "rights": "grant it to the user or role in an IAM policy",
    "": "check the AWS credentials and the region",
}
FAULTS = frozenset({"InternalServerError", "InternalFailure", "ServiceUnavailable"})
_MISSING_TABLE = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
# A header of DynamoDB's own responses.
REQUEST_ID = "x-amzn-requestid"
# Of DynamoDB's own message, in ours; it may quote whole expressions.
_MAX_QUOTED = 300
# `json.loads` also looks for blanks around the document, which takes as long as to parse it.
_raw_decode = json.JSONDecoder().raw_decode


def parse_response(response: HttpResponse, operation: str, table: str) -> dict[str, Any]:
    """Return the content of a successful response; raises the error that any other one means."""
    expected = response.headers.get("x-amz-crc32")
    if expected is not None and expected != str(crc32(response.body)):
        raise NoAnswer(f"DynamoDB's answer to {operation} was damaged on its way")
    try:
        text = response.body.decode()
        content, end = _raw_decode(text)
        if end != len(text):
            content = json.loads(text)
        if type(content) is not dict:
            content = {}
        elif response.status == 200:
            # The item after a write is looked at by `decode` only if it cannot be decoded.
            if operation == "UpdateItem" or has_shape(operation, content):
                return content
            content = {}
    except (ValueError, RecursionError):  # not JSON, or nested without end
        content = {}
    # Without a name: an error that its own frame refers to is garbage for the collector.
    raise _any_error_of(response, content, operation, table)


def _any_error_of(
    response: HttpResponse, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    try:
        return error_of(response, content, operation, table)
    except RecursionError:  # nested without end
        return error_of(response, {}, operation, table)


def error_of(
    response: HttpResponse, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    """Return the error that a response other than 200 means."""
    code = _code(content, response.headers)
    if code == "ConditionalCheckFailedException":
        item = content.get("Item")
        # As after a write, attributes are looked at by `decode` only if they cannot be decoded.
        is_valid = item is None or isinstance(item, dict)
        return ConditionFailed(item) if is_valid else _odd_shape(operation)
    if code == "TransactionCanceledException":
        return _cancelled(content, operation)
    quoted = str(content.get("message") or content.get("Message") or "")[:_MAX_QUOTED]
    refused = f"DynamoDB refused {operation} on {table!r} ({code or response.status})"
    if quoted:
        refused += f": {quoted}"
    if code in _MISSING_TABLE and response.status < 500:
        return InfrastructureNotFoundError(table, _hint(quoted))
    if code in THROTTLED or response.status == 429:
        of_item = code in ITEM_THROTTLED and _is_of_item(content)
        message = f"{refused}; retry later or raise the table's capacity"
        return Throttled(message, code=code or "429", of_item=of_item)
    if code in DENIED or response.status in (401, 403):
        remedy = _remedy(code, quoted)
        return Denied(f"{refused}; {_ADVICE[remedy]}", code=code, remedy=remedy)
    if response.status >= 500 or code in FAULTS:
        return ServerFault(
            f"DynamoDB failed at {operation} on {table!r} ({code or response.status})"
        )
    if not code:
        return _not_dynamodb(response, operation)
    return Refused(refused, code=code)


def _is_of_item(content: Mapping[str, Any]) -> bool:
    """Whether a hot item may be the reason; assumed unless DynamoDB names other reasons."""
    reasons = content.get("ThrottlingReasons") or content.get("throttlingReasons")
    if not isinstance(reasons, list):
        return True
    return any(_names_hot_item(reason) for reason in reasons)


def _names_hot_item(reason: object) -> bool:
    named = str(reason.get("reason")) if isinstance(reason, dict) else ""
    return named.endswith(_HOT_PARTITION) and not named.startswith(_OF_INDEX)


def _not_dynamodb(response: HttpResponse, operation: str) -> Exception:
    """Return the error for a response without a code of DynamoDB's: from another server."""
    message = (
        f"the answer to {operation} (status {response.status}) is not DynamoDB's; "
        "check endpoint_url and any proxy or gateway before it"
    )
    if response.status in (200, 408):
        return ServerFault(message)
    return Refused(message, code=str(response.status))


def _odd_shape(operation: str) -> ServerFault:
    return ServerFault(
        f"the answer to {operation} has not the form of DynamoDB's; "
        "check endpoint_url and any proxy or gateway before it"
    )


def _cancelled(content: Mapping[str, Any], operation: str) -> Exception:
    entries = content.get("CancellationReasons") or _reasons_in_message(content)
    if not _is_list(entries, _is_reason):
        return _odd_shape(operation)
    reasons = tuple(
        Reason(str(entry.get("Code") or "None"), entry.get("Item"), str(entry.get("Message") or ""))
        for entry in entries
    )
    codes = {reason.code for reason in reasons} - {"None"}
    if codes and codes <= THROTTLED_REASONS:
        named = ", ".join(sorted(codes))
        return Throttled(
            f"DynamoDB refused {operation}, its items are in use ({named}); try again later",
            code=named,
        )
    return TransactionCanceled(reasons)


def _reasons_in_message(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the codes from the message: ``… specific reasons [None, TransactionConflict]``."""
    _, _, listed = str(content.get("message") or content.get("Message") or "").rpartition("[")
    names, closed, _ = listed.rpartition("]")
    return [{"Code": name.strip()} for name in names.split(",")] if closed else []


def _code(content: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """``com.amazonaws.dynamodb.v20120810#Name`` or ``Name:http://…`` → ``Name``."""
    code = content.get("__type") or content.get("code") or headers.get("x-amzn-errortype") or ""
    return str(code).rsplit("#", 1)[-1].split(":", 1)[0]


def _hint(quoted: str) -> str:
    hint = (
        'open the repository with provision="table" to create the table, or check stack and region'
    )
    return f"{quoted.rstrip('.')}; {hint}" if quoted else hint


def _remedy(code: str, quoted: str) -> str:
    """Return what may help: "clock", "credentials", "rights" or ""."""
    if code in _WRONG_TIME or (
        code == "InvalidSignatureException"
        and ("Signature expired" in quoted or "not yet current" in quoted)
    ):
        return "clock"
    return "credentials" if code in _BAD_CREDENTIALS else "rights" if code in _NO_PERMISSION else ""


def has_error_of_dynamodb(response: HttpResponse) -> bool:
    """Whether a response other than 200 is DynamoDB's own, not one of a gateway before it."""
    body = response.body
    return REQUEST_ID in response.headers and body.startswith(b"{") and b'"__type"' in body


# --- the forms of content; what is of another form is no answer of DynamoDB


def has_shape(operation: str, content: Mapping[str, Any]) -> bool:
    """Whether a successful response has the form that the operation's callers rely on."""
    return all(is_valid(content.get(name)) for name, is_valid in _SHAPES.get(operation, {}).items())


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
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_list(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(is_valid, value))


def _is_dict(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_valid, value.values()))


def _is_optional_item(value: object) -> bool:
    return value is None or is_item(value)


def _is_items(value: object) -> bool:
    return _is_list(value, is_item)


def _is_reason(value: object) -> bool:
    return isinstance(value, dict) and _is_optional_item(value.get("Item"))


def _optional(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_valid(value)


_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
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
_PAGE = {"Items": _optional(_is_items), "LastEvaluatedKey": _is_optional_item}
_SHAPES: dict[str, dict[str, Callable[[object], bool]]] = {
    "BatchGetItem": {
        "Responses": _optional(partial(_is_dict, is_valid=_is_items)),
        "UnprocessedKeys": _optional(
            partial(_is_dict, is_valid=lambda value: isinstance(value, dict))
        ),
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

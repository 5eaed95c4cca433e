"""What an answer of DynamoDB means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
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
from zae_limiter.transport.wire import RawAnswer

BUSY = frozenset(
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
OF_ITEMS = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException"})
BUSY_REASONS = frozenset(
    {"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"}
)
_HOT_KEY = "KeyRangeThroughputExceeded"
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
_STALE = frozenset({"ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"})
_SKEWED = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
_NO_RIGHT = frozenset({"AccessDeniedException", "NotAuthorized"})
_ADVICE = {
    "clock": "set the clock of this machine",
    "credentials": "renew the AWS credentials",
    "rights": "grant it to the user or role in an IAM policy",
    "": "check the AWS credentials and the region",
}
FAULTS = frozenset({"InternalServerError", "InternalFailure", "ServiceUnavailable"})
_MISSING_TABLE = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
_SHOWN = 300
_decoder = json.JSONDecoder()
_decode = _decoder.decode
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]


def read_answer(answer: RawAnswer, operation: str, table: str) -> dict[str, Any]:
    """The answer's content; raises what it stands for if it is an error."""
    expected = answer.headers.get("x-amz-crc32")
    if expected is not None and expected != str(crc32(answer.body)):
        raise NoAnswer(f"DynamoDB's answer to {operation} was damaged on its way")
    try:
        text = answer.body.decode()
        content, end = _scan(text, 0)
        if end != len(text):
            content = _decode(text)
    except (ValueError, StopIteration):
        content = None
    if answer.status == 200 and isinstance(content, dict):
        return content
    raise error_of(answer, content if isinstance(content, dict) else {}, operation, table)


def error_of(
    answer: RawAnswer, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    """What an answer other than 200 stands for."""
    code = _code(content, answer.headers)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(content.get("Item"))
    if code == "TransactionCanceledException":
        return _cancelled(content, operation)
    said = str(content.get("message") or content.get("Message") or "")[:_SHOWN]
    what = f"DynamoDB refused {operation} on {table!r} ({code or answer.status}): {said}".rstrip(
        ": "
    )
    if code in _MISSING_TABLE and answer.status < 500:
        return InfrastructureNotFoundError(table, _hint(said))
    if code in BUSY or answer.status == 429:
        of_item = code in OF_ITEMS and _is_of_item(content)
        message = f"{what}; it is asked for less or again later"
        return Throttled(message, code=code or "429", of_item=of_item)
    if code in DENIED or answer.status in (401, 403):
        remedy = _remedy(code, said)
        return Denied(f"{what}; {_ADVICE[remedy]}", code=code, remedy=remedy)
    if answer.status >= 500 or code in FAULTS:
        return ServerFault(f"DynamoDB failed at {operation} on {table!r} ({code or answer.status})")
    if not code:
        return _stranger(answer, operation)
    return Refused(what, code=code)


def _is_of_item(content: Mapping[str, Any]) -> bool:
    """Whether a hot item may be the reason; DynamoDB says so, if it says anything."""
    reasons = content.get("ThrottlingReasons") or content.get("throttlingReasons")
    if not isinstance(reasons, list):
        return True
    return any(str(each.get("reason")).endswith(_HOT_KEY) for each in reasons)


def _stranger(answer: RawAnswer, operation: str) -> Exception:
    """Something answered that does not speak DynamoDB's JSON."""
    message = (
        f"the answer to {operation} (status {answer.status}) is not DynamoDB's; "
        "check endpoint_url and what stands between"
    )
    if answer.status in (200, 408):
        return ServerFault(message)
    return Refused(message, code=str(answer.status))


def _cancelled(content: Mapping[str, Any], operation: str) -> Exception:
    reasons = tuple(
        Reason(str(one.get("Code") or "None"), one.get("Item"), str(one.get("Message") or ""))
        for one in content.get("CancellationReasons") or _named_reasons(content)
    )
    codes = {reason.code for reason in reasons} - {"None"}
    if codes and codes <= BUSY_REASONS:
        busy = ", ".join(sorted(codes))
        return Throttled(
            f"DynamoDB refused {operation}, its items are in use ({busy}); try again later",
            code=busy,
        )
    return TransactionCanceled(reasons)


def _named_reasons(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Their names also stand in the message: ``… specific reasons [None, TransactionConflict]``."""
    _, _, listed = str(content.get("message") or content.get("Message") or "").rpartition("[")
    names, closed, _ = listed.rpartition("]")
    return [{"Code": name.strip()} for name in names.split(",")] if closed else []


def _code(content: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """``com.amazonaws.dynamodb.v20120810#Name`` or ``Name:http://…`` → ``Name``."""
    code = content.get("__type") or content.get("code") or headers.get("x-amzn-errortype") or ""
    return str(code).rsplit("#", 1)[-1].split(":", 1)[0]


def _hint(said: str) -> str:
    hint = (
        'open the repository with provision="table" to create the table, or check stack and region'
    )
    return f"{said.rstrip('.')}; {hint}" if said else hint


def _remedy(code: str, said: str) -> str:
    """What may help: another time in the signature, other credentials, or rights."""
    if code in _SKEWED or (
        code == "InvalidSignatureException"
        and ("Signature expired" in said or "not yet current" in said)
    ):
        return "clock"
    return "credentials" if code in _STALE else "rights" if code in _NO_RIGHT else ""


def date_ms(text: str) -> int | None:
    """An HTTP Date in epoch milliseconds."""
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 1000
    except ValueError:
        return None

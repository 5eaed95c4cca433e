"""The errors for responses of DynamoDB other than a success, with advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.exceptions import InfrastructureNotFoundError
from zae_limiter.store_errors import ConditionFailed, ServerFault, Throttled
from zae_limiter.transport.errors import Denied, Reason, Refused, TransactionCanceled
from zae_limiter.transport.messages import HttpResponse
from zae_limiter.transport.shapes import are_reasons

# Codes of requests that were not carried out and will succeed later.
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
# These codes may have a single hot item as their cause; the others concern table or account.
ITEM_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException"})
THROTTLED_REASONS = frozenset(
    {"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"}
)
# The name of a throttling reason ends like this if one partition is the cause, and begins like
# this if it is a partition of an index. Many items share a key of an index, so splitting the
# bucket that was just written would not help there.
_HOT_PARTITION = "KeyRangeThroughputExceeded"
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
_MAX_QUOTED = 300  # characters of DynamoDB's message, which may quote whole expressions


def error_of(
    response: HttpResponse, content: Mapping[str, Any], operation: str, table: str
) -> Exception:
    """Return the error that a response other than 200 means."""
    code = _code(content, response.headers)
    if code == "ConditionalCheckFailedException":
        item = content.get("Item")
        # As after a write, attributes are checked only if they cannot be decoded.
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
    """Return whether a hot item may be the reason: yes, unless DynamoDB names other reasons."""
    reasons = content.get("ThrottlingReasons") or content.get("throttlingReasons")
    if not isinstance(reasons, list):
        return True
    return any(_names_hot_item(reason) for reason in reasons)


def _names_hot_item(reason: object) -> bool:
    named = str(reason.get("reason")) if isinstance(reason, dict) else ""
    return named.endswith(_HOT_PARTITION) and not named.startswith(_OF_INDEX)


def _not_dynamodb(response: HttpResponse, operation: str) -> Exception:
    """Return the error for a response without a code of DynamoDB, from another server."""
    message = (
        f"the answer to {operation} (status {response.status}) is not DynamoDB's; "
        "check endpoint_url and any proxy or gateway before it"
    )
    if response.status in (200, 408):
        return ServerFault(message)
    return Refused(message, code=str(response.status))


def _odd_shape(operation: str) -> ServerFault:
    return ServerFault(
        f"the answer to {operation} does not have the form of DynamoDB's; "
        "check endpoint_url and any proxy or gateway before it"
    )


def _cancelled(content: Mapping[str, Any], operation: str) -> Exception:
    entries = content.get("CancellationReasons") or _reasons_in_message(content)
    if not are_reasons(entries):
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
    """Return ``Name`` of ``com.amazonaws.dynamodb.v20120810#Name`` or ``Name:http://…``."""
    code = content.get("__type") or content.get("code") or headers.get("x-amzn-errortype") or ""
    return str(code).rsplit("#", 1)[-1].split(":", 1)[0]


def _hint(quoted: str) -> str:
    hint = (
        'open the repository with provision="table" to create the table, or check stack and region'
    )
    return f"{quoted.rstrip('.')}; {hint}" if quoted else hint


def _remedy(code: str, quoted: str) -> str:
    """Return the remedy: "clock", "credentials", "rights" or ""."""
    if code in _WRONG_TIME or (
        code == "InvalidSignatureException"
        and ("Signature expired" in quoted or "not yet current" in quoted)
    ):
        return "clock"
    return "credentials" if code in _BAD_CREDENTIALS else "rights" if code in _NO_PERMISSION else ""

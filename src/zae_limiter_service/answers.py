"""Answers of the service, and problems in the form of RFC 9457."""

from __future__ import annotations

import json
from decimal import Decimal
from http import HTTPStatus
from typing import Any, NamedTuple

from zae_limiter import exceptions

JSON = "application/json"
PROBLEM = "application/problem+json"
RETRY_SOON_S = "1"  # a full queue empties within moments, and a breaker probes once a second
# Advice of the library, in terms of the service.
PHRASES = {
    "store some by set_system_defaults(), or pass limits=": "store some: PUT /v1/system/limits",
    "create_entity() creates it": "create it: POST /v1/entities",
    "set_parent() changes its parent": "change its parent: PUT /v1/entities/{id}/parent",
    "register_namespace() creates it": "register it: zae-limiter namespace register",
}

Headers = tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """The answer to one request."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    content_type: str = JSON


class RefusedCall(Exception):
    """A request is refused; the answer says why."""

    def __init__(self, answer: Answer, reason: str | None = None) -> None:
        super().__init__(answer.status)
        self.answer = answer
        self.reason = reason  # the label under which the refusal is counted; None if it is not


def json_answer(status: int, data: object, headers: Headers = ()) -> Answer:
    """Return an answer with JSON; amounts of money are text."""
    return Answer(status, _encode(data), headers)


def problem(
    status: int, code: str, detail: str, *, headers: Headers = (), **members: Any
) -> Answer:
    """Return a problem. ``code`` names it for programs, ``detail`` says what to do."""
    data = {
        "type": f"urn:zae-limiter:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **members,
    }
    return Answer(status, _encode(data), headers, PROBLEM)


def refused(status: int, code: str, detail: str, **options: Any) -> RefusedCall:
    """Return a refusal with a problem, to be raised."""
    return RefusedCall(problem(status, code, detail, **options))


def overloaded(code: str, detail: str) -> Answer:
    """Return 503 with the time after which to try again."""
    return problem(503, code, detail, headers=(("Retry-After", RETRY_SOON_S),))


def rejection(error: exceptions.RateLimitExceeded) -> Answer:
    """Return 429 with the documented rejection."""
    members = error.as_dict()
    headers = tuple(error.headers().items())
    return problem(429, "rate-limit-exceeded", members["message"], headers=headers, **members)


def error_answer(error: exceptions.ZAELimiterError) -> Answer:
    """Return the answer to an error of the library."""
    if isinstance(error, exceptions.RateLimitExceeded):
        return rejection(error)
    text = str(error)
    for in_code, over_http in PHRASES.items():
        text = text.replace(in_code, over_http)
    match error:
        case exceptions.ValidationError():
            return problem(400, "invalid", text, field=error.field)
        case exceptions.NamespaceNotFoundError():
            return problem(404, "unknown-namespace", text)
        case exceptions.EntityNotFoundError():
            return problem(404, "unknown-entity", text)
        case exceptions.EntityExistsError() | exceptions.LimitsChangedError():
            return problem(409, "conflict", text)
        case exceptions.LeaseExpiredError():
            return problem(410, "ended", text)
        case exceptions.PermissionDenied():
            return problem(
                503, "store-denied", "the store denies access; its operator must grant it"
            )
        case _:
            # The text of the error may name hosts of the store, which clients must not learn.
            return overloaded(
                "unavailable", "limits cannot be checked at the moment; try again later"
            )


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    raise TypeError(f"{type(value).__name__} is not a JSON value")


# Made once: json.dumps() would make an encoder for each answer.
_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"), allow_nan=False)


def _encode(data: object) -> bytes:
    return _ENCODER.encode(data).encode()

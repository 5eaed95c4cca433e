"""Responses to requests that are not served; the same for every framework."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.web.keys import RefusedKey

if TYPE_CHECKING:
    from zae_limiter.models.status import HeaderStyle

# The time after which clients should ask again: a breaker probes the store once a second.
_RETRY_OUTAGE_S: Final = "1"
# A 401 must name a way to authenticate. No standard has a name for keys; FastAPI sends this one.
_CHALLENGE: Final = ("WWW-Authenticate", "APIKey")
_PHRASES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    429: "Too Many Requests",
    503: "Service Unavailable",
}

Headers = list[tuple[str, str]]
# The errors that become a response.
AnsweredError = RateLimitExceeded | RateLimiterUnavailable | RefusedKey


class Refusal(NamedTuple):
    """The response to a request that is not served."""

    status: int
    headers: Headers
    body: bytes

    @property
    def status_line(self) -> str:
        """Return the status line for WSGI."""
        return f"{self.status} {_PHRASES[self.status]}"


def refusal(
    error: AnsweredError, style: HeaderStyle | None = "ietf", *, details: bool = False
) -> Refusal:
    """Return 429 for a rejection, 503 for an outage that blocks, 400 or 401 for a refused key.

    The body of a 429 says when to retry. With ``details`` the body is ``as_dict()``, which names
    entities, their parents, limits and levels. If the style is None, only ``Retry-After`` is sent.
    """
    body = body_of(error, details=details)
    if isinstance(error, RateLimitExceeded):
        return _json(429, body, _headers_of(error, style))
    if isinstance(error, RateLimiterUnavailable):
        return _json(503, body, [("Retry-After", _RETRY_OUTAGE_S)])
    return _json(error.status, body, [_CHALLENGE] if error.status == 401 else [])


def body_of(error: AnsweredError, *, details: bool = False) -> dict[str, Any]:
    """Return the body of a refusal."""
    if isinstance(error, RateLimitExceeded):
        return error.as_dict() if details else _public_rejection(error)
    if isinstance(error, RateLimiterUnavailable):
        message = "rate limits cannot be checked at the moment; try again later"
        return {"error": "rate_limiter_unavailable", "message": message}
    return {"error": error.code, "message": error.message}


def _public_rejection(error: RateLimitExceeded) -> dict[str, Any]:
    """Return a body that says when to retry, without the tenant and its limits."""
    seconds = error.retry_after_seconds
    never_fits = math.isinf(seconds)
    advice = "this request can never fit; ask for less" if never_fits else f"retry in {seconds:g} s"
    return {
        "error": "rate_limit_exceeded",
        "message": f"rate limit exceeded: {advice}",
        "retry_after_seconds": None if never_fits else seconds,
    }


def _headers_of(error: RateLimitExceeded, style: HeaderStyle | None) -> Headers:
    if style is None:
        return [("Retry-After", error.retry_after_header)]
    return list(error.headers(style).items())


def _json(status: int, body: dict[str, Any], headers: Headers) -> Refusal:
    data = json.dumps(body).encode()
    described = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    return Refusal(status, [*described, *headers], data)


def lease_headers(lease: Any, style: HeaderStyle | None) -> dict[str, str]:
    """Return the headers that tell a client its limits; none if the style is None."""
    return {} if style is None else lease.headers(style)


def unless_present(headers: dict[str, str], present: Iterable[str]) -> dict[str, str]:
    """Return the headers, or none if the response already has one of them.

    In that case a dependency or the application has set its own headers, which are more specific,
    and the client should get only one set.
    """
    names = {name.lower() for name in present}
    return {} if any(name.lower() in names for name in headers) else headers


def find_error(error: BaseException) -> AnsweredError | None:
    """Return the error to answer, which frameworks may have wrapped; None if there is none."""
    seen: set[int] = set()  # after `raise error from error`, an error is its own cause
    unread: list[BaseException] = [error]
    while unread:
        each = unread.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, RateLimitExceeded | RateLimiterUnavailable | RefusedKey):
            return each
        if each.__cause__ is not None:
            unread.append(each.__cause__)
        if isinstance(each, BaseExceptionGroup):
            unread.extend(reversed(each.exceptions))
    return None

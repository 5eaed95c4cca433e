"""The gate before every route: hosts, content types, sizes and callers of requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter_ops.addresses import is_loopback
from zae_limiter_service.answers import Answer, Headers, RefusedCall, problem
from zae_limiter_service.fields import MAX_BODY

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from zae_limiter_service.access import Role, ServiceAccess, ServiceCaller
    from zae_limiter_service.settings import ServiceSettings

WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# A second one of these would let two readers of a request see two different requests.
SINGLE = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"idempotency-key"}
)
CHALLENGE: Headers = (("WWW-Authenticate", "Bearer"),)
CLOSE: Headers = (("Connection", "close"),)


class RequestHeaders(NamedTuple):
    """The headers that the service reads."""

    host: str
    content_type: str
    content_length: str | None
    authorization: str | None
    idempotency_key: str | None


class Gate:
    """Refuses requests from web pages, from strangers, and those that are too large."""

    def __init__(self, settings: ServiceSettings, access: ServiceAccess) -> None:
        self._access = access
        self._hosts = settings.hosts if settings.is_local else None

    def headers(self, scope: Scope) -> RequestHeaders:
        """Return the headers of a request; raise if it is ambiguous or from another site."""
        found = _single_headers(scope["headers"])
        host = found.get(b"host", "")
        # A page can make a browser call this machine under a name of its own.
        if self._hosts is not None and host.lower() not in self._hosts:
            raise _refusal(
                400, "host", "this host is not served here; call the service by its address"
            )
        return RequestHeaders(
            host,
            found.get(b"content-type", ""),
            found.get(b"content-length"),
            found.get(b"authorization"),
            found.get(b"idempotency-key"),
        )

    def check_content(self, method: str, headers: RequestHeaders) -> None:
        """Refuse a body that a form of a web page could send, or that is too large."""
        if method in WITH_BODY:
            kind = headers.content_type.partition(";")[0].strip().lower()
            if kind != "application/json":
                raise _refusal(415, "content_type", "Content-Type must be application/json")
        length = headers.content_length
        if length is not None:
            if not (length.isascii() and length.isdecimal()):
                raise _refusal(400, "malformed", "Content-Length must be a number", CLOSE)
            if len(length) > 9 or int(length) > MAX_BODY:
                raise _too_large()

    def caller(
        self, scope: Scope, headers: RequestHeaders, roles: frozenset[Role] | None
    ) -> ServiceCaller | None:
        """Return the caller; raise if it is unknown or its role does not permit the request."""
        common_name = scope.get("zae_limiter.common_name")
        caller = self._access.caller(headers.authorization, common_name)
        if roles is None and is_from_here(scope):
            return caller
        if caller is None:
            raise _refusal(
                401, "unauthenticated", "a token is needed: Authorization: Bearer …", CHALLENGE
            )
        if roles is not None and caller.role not in roles:
            raise _refusal(403, "role", f"the role {caller.role} does not permit this request")
        return caller


def is_from_here(scope: Scope) -> bool:
    """Tell whether a request comes from this machine."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if the client is gone. Raise if it is too large."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            raise _too_large()
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _single_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    is_chunked = False
    for name, value in headers:
        if name in SINGLE:
            if name in found:
                raise _refusal(400, "malformed", f"the header {name.decode()} comes twice", CLOSE)
            found[name] = value.decode("latin-1").strip()
        elif name == b"transfer-encoding":
            is_chunked = True
    if is_chunked and b"content-length" in found:
        reason = "a request has a length or is chunked, not both"
        raise _refusal(400, "malformed", reason, CLOSE)
    return found


def _refusal(status: int, reason: str, detail: str, headers: Headers = ()) -> RefusedCall:
    answer: Answer = problem(status, reason.replace("_", "-"), detail, headers=headers)
    return RefusedCall(answer, reason)


def _too_large() -> RefusedCall:
    return _refusal(413, "too_large", f"a body has at most {MAX_BODY:,} bytes", CLOSE)

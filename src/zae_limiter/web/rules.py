"""What a request is charged, and how a rejection is answered; the same for every framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zae_limiter.exceptions import (
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)

if TYPE_CHECKING:
    from zae_limiter.models.status import HeaderStyle

# When the store is to be asked again; a breaker looks once a second.
_RETRY_OUTAGE_S: Final = "1"
DEFAULT_COST: Final[Mapping[str, int]] = {"rpm": 1}

Headers = list[tuple[str, str]]
Error = RateLimitExceeded | RateLimiterUnavailable


class WebRequest:
    """A request of an ASGI or WSGI server: method, path, headers and the client's address.

    ``native`` is the server's own mapping: the scope or the environ.
    """

    __slots__ = ("client", "headers", "method", "native", "path")

    def __init__(
        self,
        native: Mapping[str, Any],
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]],
        client: str | None,
    ) -> None:
        self.native = native
        self.method = method
        self.path = path
        self.headers = {name.lower(): value for name, value in headers}
        self.client = client

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any]) -> WebRequest:
        """Read the scope of ASGI."""
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
        client = scope.get("client")
        return cls(scope, scope["method"], scope["path"], headers, client[0] if client else None)

    @classmethod
    def of_environ(cls, environ: Mapping[str, Any]) -> WebRequest:
        """Read the environ of WSGI."""
        headers = [
            (name.removeprefix("HTTP_").replace("_", "-"), str(value))
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        ]
        method, path = environ.get("REQUEST_METHOD", "GET"), environ.get("PATH_INFO", "")
        return cls(environ, method, path, headers, environ.get("REMOTE_ADDR"))


def header(name: str) -> Callable[[Any], str | None]:
    """Return a key function: the value of a header, or None, which leaves a request unlimited."""
    wanted = name.lower()

    def key(request: Any) -> str | None:
        value: str | None = request.headers.get(wanted)
        return value or None

    return key


@dataclass(frozen=True, slots=True)
class WebOutcome:
    """How a request ended. ``complete`` is False if the client did not get the whole response."""

    status: int | None
    body_bytes: int
    complete: bool


class WebCharge(NamedTuple):
    """What one request is charged, and to which bucket."""

    entity_id: str
    resource: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WebRule:
    """How requests are charged: the entity by ``key``, the resource, and the cost.

    Each is a value or a function of the request. A key of None leaves the request unlimited.
    Without a cost, a request costs 1 of ``rpm``.
    ``cost_after`` is a function of the request and its ``WebOutcome``: the true cost, settled when
    the response has ended. ``options`` go to ``acquire``. A charge is kept if the request fails.
    """

    key: Callable[[Any], Any] | str | None = None
    resource: Callable[[Any], Any] | str = "api"
    cost: Callable[[Any], Any] | Mapping[str, int] | None = None
    cost_after: Callable[[Any, WebOutcome], Mapping[str, int] | None] | None = None
    style: HeaderStyle = "ietf"
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self, limiter: Any) -> None:
        """Raise ValidationError if only one of limiter and key is given."""
        if (limiter is None) != (self.key is None):
            missing = "limiter" if limiter is None else "key"
            raise ValidationError(missing, None, "is needed to limit requests")

    def parts(self, request: Any) -> Iterator[Any]:
        """Yield entity, resource and cost, which an async function may have left to be awaited."""
        cost = DEFAULT_COST if self.cost is None else self.cost
        for part in (self.key, self.resource, cost):
            yield part(request) if callable(part) else part

    def charge(self, request: Any) -> WebCharge | None:
        """Return what the request is charged, None if it is unlimited."""
        entity_id, resource, amounts = self.parts(request)
        return None if entity_id is None else WebCharge(entity_id, resource, amounts)

    def acquire(self, limiter: Any, charge: WebCharge) -> Any:
        """Return the acquire of the charge, not yet entered."""
        return limiter.acquire(*charge, **{"on_error": "keep", **self.options})

    def final_cost(self, request: Any, outcome: WebOutcome) -> Mapping[str, int] | None:
        """Return what the request has really cost, None if that is not known."""
        return None if self.cost_after is None else self.cost_after(request, outcome)


# --- answers ---------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """The response to a request that is not served."""

    status: int
    headers: Headers
    body: bytes

    @property
    def status_line(self) -> str:
        """Return the status as WSGI wants it."""
        return f"{self.status} {_PHRASES[self.status]}"


_PHRASES: Final = {400: "Bad Request", 429: "Too Many Requests", 503: "Service Unavailable"}


def refusal(error: Error | ValidationError, style: HeaderStyle = "ietf") -> Refusal:
    """Answer 429 with the limits, 503 for an outage that blocks, 400 for a key that is no name."""
    if isinstance(error, RateLimitExceeded):
        return _json(429, error.as_dict(), list(error.headers(style).items()))
    if isinstance(error, RateLimiterUnavailable):
        message = "rate limits cannot be checked at the moment; try again later"
        body = {"error": "rate_limiter_unavailable", "message": message}
        return _json(503, body, [("Retry-After", _RETRY_OUTAGE_S)])
    return _json(400, {"error": "invalid_request", "message": str(error)}, [])


def _json(status: int, body: dict[str, Any], headers: Headers) -> Refusal:
    data = json.dumps(body).encode()
    described = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    return Refusal(status, [*described, *headers], data)


def is_bad_key(error: ValidationError) -> bool:
    """Whether the key is no name of an entity: it comes from the client, all else from our code."""
    return error.field == "entity_id"


def find_error(error: BaseException) -> Error | None:
    """Return the rejection or outage inside of an error: frameworks wrap those of a response."""
    if isinstance(error, RateLimitExceeded | RateLimiterUnavailable):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = find_error(inner)
            if found is not None:
                return found
    return None if error.__cause__ is None else find_error(error.__cause__)

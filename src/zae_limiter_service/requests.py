"""A request as routes see it, and the table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from zae_limiter.exceptions import ValidationError
from zae_limiter_service.access import Role, ServiceCaller
from zae_limiter_service.answers import Answer, problem
from zae_limiter_service.fields import NAMESPACE, Field, Fields, fields, parse_body

MAX_QUERY = 8_000  # bytes
MAX_PARAMETERS = 20

Handler = Callable[["ServiceRequest"], Awaitable[Answer]]
# The answers that any request about a store may get, by status.
PROBLEMS = {400: "Problem", 401: "Problem", 403: "Problem", 404: "Problem", 503: "Problem"}
OF_NAMESPACE = Field("namespace", NAMESPACE, text="Namespace; default: that of the service")
ONLY_NAMESPACE = fields(OF_NAMESPACE)


class Route(NamedTuple):
    """One operation. ``path`` has parts in braces, which are the arguments of the operation."""

    method: str
    path: str
    handler: Handler
    roles: frozenset[Role] | None  # None: open to everybody on this machine
    summary: str
    answers: Mapping[int, str]  # by status, the name of a schema; empty: no body
    query: Fields = ONLY_NAMESPACE
    body: Fields | None = None
    takes_key: bool = False  # whether an Idempotency-Key counts


class ServiceRequest(NamedTuple):
    """A request that has passed the gate."""

    route: Route
    arguments: tuple[str, ...]
    query: Mapping[str, Any]
    body: bytes
    caller: ServiceCaller
    namespace: str
    idempotency_key: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the checked body."""
        assert self.route.body is not None, "the route has a body"
        return self.route.body.check(parse_body(self.body), "the body")


class Match(NamedTuple):
    route: Route
    arguments: tuple[str, ...]


class Routes:
    """Finds the route of a path. Its parts are decoded one by one, so ids may have slashes."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.all = routes
        self._by_length: dict[int, list[tuple[tuple[str, ...], Route]]] = {}
        for route in routes:
            parts = tuple(route.path.split("/"))
            self._by_length.setdefault(len(parts), []).append((parts, route))
        self._by_name = {(route.method, route.path): route for route in routes}
        self._without_arguments = {
            key: Match(route, ()) for key, route in self._by_name.items() if "{" not in route.path
        }

    def find(self, method: str, raw_path: str) -> Match | Answer:
        """Return the route and its arguments; or a problem, 404 or 405."""
        found = self._without_arguments.get((method, raw_path))
        if found is not None:
            return found
        parts = raw_path.split("/")
        allowed = set()
        for pattern, route in self._by_length.get(len(parts), ()):
            arguments = _arguments(pattern, parts)
            if arguments is None:
                continue
            if route.method == method:
                return Match(route, arguments)
            allowed.add(route.method)
        if not allowed:
            return problem(404, "unknown-path", "there is no such path; see /v1/openapi.json")
        names = ", ".join(sorted(allowed))
        headers = (("Allow", names),)
        return problem(405, "unknown-method", f"this path takes {names}", headers=headers)

    def named(self, method: str, path: str) -> Route:
        return self._by_name[method, path]


def _arguments(pattern: tuple[str, ...], parts: list[str]) -> tuple[str, ...] | None:
    found = []
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            if not part:
                return None
            found.append(decoded(part, expected))
        elif expected != part:
            return None
    return tuple(found)


def decoded(part: str, field: str) -> str:
    """Return a part of a path without percent signs; raise if it is not UTF-8."""
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise ValidationError(field.strip("{}"), part, "must be UTF-8") from None


def parse_query(text: bytes) -> dict[str, str]:
    """Return the parameters of a query; raise if one is repeated or not UTF-8."""
    if not text:
        return {}
    if len(text) > MAX_QUERY:
        raise ValidationError("query", len(text), f"must have at most {MAX_QUERY} bytes")
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise ValidationError("query", text[:80], "must be name=value pairs") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValidationError("query", text[:80], "has a name twice")
    return found

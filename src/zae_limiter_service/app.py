"""The ASGI application: it asks the gate, calls a route, and counts and logs the request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter_service.access import ANY_NAMESPACE, LOOKING, Role, ServiceCaller
from zae_limiter_service.answers import Answer, RefusedCall, error_answer, overloaded, problem
from zae_limiter_service.gate import WITH_BODY, Gate, read_body
from zae_limiter_service.lease_routes import check_key
from zae_limiter_service.requests import Match, Routes, ServiceRequest, parse_query

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from zae_limiter_service.access_log import AccessLog
    from zae_limiter_service.counters import ServiceCounters

OWN_PATHS = ("/v1", "/healthz", "/readyz", "/metrics")
NOBODY = ServiceCaller("", Role.READ, (ANY_NAMESPACE,))  # a caller without a token
CLIENT_GONE = Answer(499)  # never sent
_logger = logging.getLogger(__name__)


class ServiceApp:
    """Answers requests. Other paths than its own go to the page, if there is one."""

    def __init__(
        self,
        routes: Routes,
        gate: Gate,
        counters: ServiceCounters,
        *,
        namespace: str,
        max_requests: int,
        log: AccessLog | None = None,
        page: ASGIApp | None = None,
    ) -> None:
        self._routes, self._gate, self._counters = routes, gate, counters
        self._namespace = namespace
        self._max_requests = max_requests
        self._log = log
        self._page = page
        self.in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        reply = scope.pop("zae_limiter.reply", None)  # of our server, to send an answer at once
        if self._page is not None and not scope["path"].startswith(OWN_PATHS):
            await self._page(scope, receive, send)
            return
        began = time.perf_counter()
        seen = _Seen()
        answer = await self._answer(scope, receive, seen)
        headers, body = _written(scope["method"], answer)
        if reply is not None:
            reply(answer.status, headers, body)
        else:
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        self._note(scope, seen, answer, time.perf_counter() - began)

    async def perform_forwarded(self, request: ServiceRequest) -> Answer:
        """Perform a request that has passed the gate of another worker."""
        return await self._answered(request.route.handler(request))

    async def _answer(self, scope: Scope, receive: Receive, seen: _Seen) -> Answer:
        """Return the answer to a request, whatever happens."""
        if self.in_progress >= self._max_requests:
            self._counters.add("refused_total", (("reason", "overloaded"),))
            return overloaded("overloaded", "too many requests are waiting; try again later")
        self.in_progress += 1
        try:
            return await self._answered(self._perform(scope, receive, seen))
        finally:
            self.in_progress -= 1

    async def _answered(self, performing: Awaitable[Answer]) -> Answer:
        try:
            return await performing
        except RefusedCall as error:
            if error.reason is not None:
                self._counters.add("refused_total", (("reason", error.reason),))
            return error.answer
        except ZAELimiterError as error:
            return error_answer(error)
        except Exception:
            _logger.exception("a request failed")
            return problem(500, "defect", "the service has a defect; its log tells more")

    async def _perform(self, scope: Scope, receive: Receive, seen: _Seen) -> Answer:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        headers = self._gate.headers(scope)
        found = self._routes.find(method, scope["raw_path"].decode("latin-1").partition("?")[0])
        if not isinstance(found, Match):
            # Strangers do not learn which paths there are.
            self._gate.caller(scope, headers, LOOKING)
            return found
        route = seen.route = found.route
        seen.route_path = route.path
        caller = self._gate.caller(scope, headers, route.roles) or NOBODY
        seen.caller = caller.name
        self._gate.check_content(method, headers)
        key = check_key(headers.idempotency_key) if route.takes_key else None
        query = route.query.check(parse_query(scope["query_string"]), "the query")
        namespace = seen.namespace = query.pop("namespace") or self._namespace
        if not caller.may_enter(namespace):
            answer = problem(403, "namespace", "this token does not permit this namespace")
            raise RefusedCall(answer, "namespace")
        body = b"" if method not in WITH_BODY else await read_body(receive)
        if body is None:
            return CLIENT_GONE
        request = ServiceRequest(route, found.arguments, query, body, caller, namespace, key)
        if key is None and b'"timeout"' in body:
            return await _unless_gone(route.handler(request), receive)
        return await route.handler(request)

    def _note(self, scope: Scope, seen: _Seen, answer: Answer, took_s: float) -> None:
        path = seen.route_path or "other"
        method = scope["method"] if seen.route_path else "other"
        labels = (("route", path), ("method", method), ("status", str(answer.status)))
        self._counters.add("requests_total", labels)
        self._counters.observe("request_seconds", took_s)
        if self._log is not None:
            self._log.write(scope, path, answer, seen.caller, seen.namespace, took_s)


class _Seen:
    """The parts of a request that are counted and logged."""

    __slots__ = ("caller", "namespace", "route", "route_path")

    def __init__(self) -> None:
        self.route: Any = None
        self.route_path = ""
        self.caller: str | None = None
        self.namespace: str | None = None


async def _unless_gone(answering: Any, receive: Receive) -> Answer:
    """Return the answer; cancel an acquire that waits if its client hangs up.

    Else the acquire would be granted to nobody, and hold its amounts until the lease expires.
    """
    task = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            return CLIENT_GONE
        answer: Answer = task.result()
        return answer
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _written(method: str, answer: Answer) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of an answer."""
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"cache-control", b"no-store"))
    if answer.status != 204:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", str(len(answer.body)).encode()))
    return headers, b"" if method == "HEAD" else answer.body

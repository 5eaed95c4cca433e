"""Pure ASGI middleware: limits requests, and answers rejections of the application itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.web.rules import (
    Headers,
    Refusal,
    WebCharge,
    WebOutcome,
    WebRequest,
    WebRule,
    find_error,
    is_bad_key,
    refusal,
)

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter.models.status import HeaderStyle

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Key of the scope that says: this middleware answers rejections, so what it wraps may raise them.
ANSWERS_REJECTIONS = "zae_limiter.answers_rejections"


class AsgiMiddleware:
    """Charges every HTTP request before it reaches the application; the lease lasts until its end.

    The application finds the lease as ``request.state.lease``. A rejection, here or anywhere in the
    application, becomes a 429, also one in a streaming generator that has not sent anything yet:
    the start of a response is held back until its first bytes. Without a limiter that is all it
    does. Other protocols, such as WebSockets, pass unlimited.
    """

    def __init__(
        self,
        app: App,
        /,
        limiter: RateLimiter | None = None,
        *,
        key: Callable[[WebRequest], Any] | str | None = None,
        resource: Callable[[WebRequest], Any] | str = "api",
        cost: Callable[[WebRequest], Any] | Mapping[str, int] | None = None,
        cost_after: Callable[[WebRequest, WebOutcome], Mapping[str, int] | None] | None = None,
        style: HeaderStyle = "ietf",
        **options: Any,
    ) -> None:
        self.app = app
        self._limiter = limiter
        self._rule = WebRule(
            key=key,
            resource=resource,
            cost=cost,
            cost_after=cost_after,
            style=style,
            options=options,
        )
        self._rule.check(limiter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[ANSWERS_REJECTIONS] = True
        response = _HeldResponse(receive, send)
        try:
            await self._serve(scope, response)
            await response.flush()
        except Exception as error:
            rejection = find_error(error)
            if rejection is None or response.is_started:
                raise
            await response.answer(refusal(rejection, self._rule.style))

    async def _serve(self, scope: Scope, response: _HeldResponse) -> None:
        request = WebRequest.of_scope(scope)
        charge = None if self._limiter is None else await charge_of(self._rule, request)
        if charge is None:
            await self.app(scope, response.receive, response.send)
            return
        try:
            acquire = self._rule.acquire(self._limiter, charge)
        except ValidationError as error:
            if not is_bad_key(error):
                raise
            await response.answer(refusal(error))
            return
        async with acquire as lease:
            response.headers = list(lease.headers(self._rule.style).items())
            scope.setdefault("state", {})["lease"] = lease
            try:
                await self.app(scope, response.receive, response.send)
            finally:
                cost = self._rule.final_cost(request, response.outcome())
                if cost is not None:
                    await lease.settle(cost)


async def charge_of(rule: WebRule, request: Any) -> WebCharge | None:
    """Return what the request is charged; the functions of the rule may be async."""
    entity_id, resource, amounts = [
        await part if isawaitable(part) else part for part in rule.parts(request)
    ]
    return None if entity_id is None else WebCharge(entity_id, resource, amounts)


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]


class _HeldResponse:
    """Passes a response on, but holds its start back until the first bytes of its body."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self.headers: Headers = []
        self.is_started = False
        self._status: int | None = None
        self._bytes = 0
        self._ended = self._disconnected = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._ended:
            self._disconnected = True
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._status = message["status"]
            self._start = message
            return
        size, is_last = 0, kind == "http.response.pathsend"
        if kind == "http.response.body":
            size = len(message.get("body", b""))
            is_last = not message.get("more_body", False)
            if self._start is not None and not size and not is_last:
                return  # frameworks send it to get the start out
        await self.flush()
        await self._send(message)
        self._bytes += size  # not before: some servers raise for a client that has gone
        self._ended = self._ended or is_last

    async def flush(self) -> None:
        """Send a start that was held back."""
        start, self._start = self._start, None
        if start is None:
            return
        self.is_started = True
        headers = [*start.get("headers", ()), *_encoded(self.headers)]
        await self._send({**start, "headers": headers})

    async def answer(self, answer: Refusal) -> None:
        """Send another response in place of one that has not started."""
        headers = _encoded(answer.headers)
        self._start = None
        self.is_started = True
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    def outcome(self) -> WebOutcome:
        """Return how the response has ended. After a disconnect servers ignore what is sent."""
        return WebOutcome(self._status, self._bytes, self._ended and not self._disconnected)

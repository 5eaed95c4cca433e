"""Pure ASGI middleware. It limits requests, and answers rejections that the application raises."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from zae_limiter.web.answers import (
    Headers,
    Refusal,
    find_error,
    lease_headers,
    refusal,
    unless_present,
)
from zae_limiter.web.options import ASYNC, FUNCTIONS
from zae_limiter.web.requests import WebRequest
from zae_limiter.web.rules import WebCharge, WebOutcome, WebRule

if TYPE_CHECKING:
    from zae_limiter._async.limiter import RateLimiter
    from zae_limiter.models.status import HeaderStyle

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Scope key of the HeldResponse. If it is set, the middleware answers rejections raised inside.
HELD_RESPONSE = "zae_limiter.response"
# The most bytes of a body that are read while a request waits. Then its client is not watched.
MOST_READ_AHEAD_BYTES = 256 * 1024


class AsgiMiddleware:
    """Charges every HTTP request before it reaches the application; the lease lasts until its end.

    The application finds the lease as ``request.state.lease``. A rejection, here or anywhere in the
    application, becomes a 429. This works even for a streaming generator that has not sent anything
    yet, since the start of a response is held back until its first bytes. Without a limiter, the
    middleware only answers such rejections. Other protocols, such as WebSockets, are not limited.

    A request without a key is answered by 401; with ``key_optional`` it is not limited, and its
    lease is None. The same holds for requests for which ``skip`` returns true, such as health
    checks. With ``known_only``, keys of entities that are not registered are answered by 401. The
    body of a 429 names limits only if ``details`` is set.
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
        cost_after: Callable[[WebRequest, WebOutcome], Any] | None = None,
        skip: Callable[[WebRequest], Any] | None = None,
        style: HeaderStyle | None = "ietf",
        key_optional: bool = False,
        known_only: bool = False,
        details: bool = False,
        **options: Any,
    ) -> None:
        self.app = app
        self._limiter = limiter
        self._rule = WebRule(
            key=key,
            resource=resource,
            cost=cost,
            cost_after=cost_after,
            skip=skip,
            style=style,
            key_optional=key_optional,
            known_only=known_only,
            details=details,
            options=options,
        )
        self._rule.check(limiter, awaited=FUNCTIONS, kind=ASYNC)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = scope[HELD_RESPONSE] = HeldResponse(receive, send)
        try:
            await self._serve(scope, response)
            await response.flush()
        except ClientGone:
            return  # the client has gone, so there is nobody to answer
        except Exception as error:
            if not await self._answer(error, response):
                raise
        finally:
            response.stop_reading()

    async def _answer(self, error: Exception, response: HeldResponse) -> bool:
        """Answer a rejection; return False if it is another error, or the response has started."""
        answered = find_error(error)
        if answered is None or (response.is_started and not response.is_answered):
            return False
        if not response.is_answered:
            rule = self._rule
            await response.answer(refusal(answered, rule.style, details=rule.details))
        return True

    async def _serve(self, scope: Scope, response: HeldResponse) -> None:
        state = scope.setdefault("state", {})
        if self._limiter is None:
            state.setdefault("lease", None)  # an outer middleware may have set a lease
            await self.app(scope, response.receive, response.send)
            return
        state["lease"] = None
        request = WebRequest.of_scope(scope)
        charge = await self._rule.charge_async(request)
        if charge is None:
            await self.app(scope, response.receive, response.send)
            return
        await self._serve_charged(scope, response, request, charge)

    async def _serve_charged(
        self, scope: Scope, response: HeldResponse, request: WebRequest, charge: WebCharge
    ) -> None:
        rule = self._rule
        acquire = await rule.acquire_async(self._limiter, charge)
        if rule.waits:
            acquire = WatchedAcquire(acquire, response)
        async with acquire as lease:
            response.limit(lease, rule.style)
            scope["state"]["lease"] = lease
            try:
                await self.app(scope, response.receive, response.send)
                await response.flush()
            except Exception as error:
                await self._answer(error, response)  # first, since it changes the outcome
                raise
            finally:
                await rule.settle_async(lease, request, response.outcome())


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]


class HeldResponse:
    """Passes a response on, and holds back its start until the first bytes of its body."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self._lease: Any = None
        self._style: HeaderStyle | None = None
        self.is_started = False
        self.is_answered = False
        self._status: int | None = None
        self._bytes = 0
        self._ended = self._disconnected = False
        self._read_ahead: deque[Message] = deque()
        self._coming: asyncio.Future[Message] | None = None

    def limit(self, lease: Any, style: HeaderStyle | None) -> None:
        """Add headers to the response that tell the limits of a lease when the response starts."""
        self._lease, self._style = lease, style

    async def receive(self) -> Message:
        message = self._read_ahead.popleft() if self._read_ahead else await self._next_message()
        if message["type"] == "http.disconnect" and not self._ended:
            self._disconnected = True
        return message

    async def read_until_disconnect(self) -> bool:
        """Read ahead until the client hangs up; return False if the client sends too much.

        The messages are kept for ``receive``.
        """
        size = 0
        while size <= MOST_READ_AHEAD_BYTES:
            if self._coming is None:
                self._coming = asyncio.ensure_future(self._receive())
            message = await self._next_message()
            self._read_ahead.append(message)
            if message["type"] == "http.disconnect":
                return True
            size += len(message.get("body", b""))
        return False

    async def _next_message(self) -> Message:
        """Return the next message. If a reader is cancelled, the next reader gets its message.

        Cancelling a receive may lose a message that other middleware has already taken from the
        server. So a receive that reads ahead is never cancelled: ``wait`` leaves it running.
        """
        while (coming := self._coming) is not None:
            await asyncio.wait([coming])
            if self._coming is coming:  # another reader may have taken the message meanwhile
                self._coming = None
                return coming.result()
        return await self._receive()

    def stop_reading(self) -> None:
        """Cancel a receive that nobody waits for, once the request has ended."""
        if self._coming is not None:
            self._coming.cancel()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
            return
        size, is_last = 0, kind == "http.response.pathsend"
        if kind == "http.response.body":
            size = len(message.get("body", b""))
            is_last = not message.get("more_body", False)
            if self._start is not None and not size and not is_last:
                return  # frameworks send such an empty chunk to send the start early
        await self.flush()
        await self._send(message)
        self._bytes += size  # after the send, since some servers raise if the client has gone
        self._ended = self._ended or is_last

    async def flush(self) -> None:
        """Send the start if it was held back."""
        start, self._start = self._start, None
        if start is None:
            return
        self.is_started = True
        self._status = start["status"]
        own = list(start.get("headers", ()))
        headers = {} if self._lease is None else lease_headers(self._lease, self._style)
        added = unless_present(headers, [name.decode("latin-1") for name, _ in own])
        await self._send({**start, "headers": [*own, *_encoded(list(added.items()))]})

    async def answer(self, answer: Refusal) -> None:
        """Send a refusal in place of a response that has not started."""
        headers = _encoded(answer.headers)
        self._start = None
        self.is_started = self.is_answered = True
        self._status = answer.status
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body})
        self._bytes, self._ended = len(answer.body), True

    def outcome(self) -> WebOutcome:
        """Return the outcome. After a disconnect the response is incomplete."""
        return WebOutcome(self._status, self._bytes, self._ended and not self._disconnected)


class ClientGone(Exception):
    """The client hung up while its request waited for capacity; nothing was charged."""


class WatchedAcquire:
    """An acquire that leaves the waiting line if the client hangs up."""

    def __init__(self, acquire: Any, response: HeldResponse) -> None:
        self._acquire = acquire
        self._response = response

    async def __aenter__(self) -> Any:
        patience = asyncio.timeout(None)
        try:
            async with patience:
                watching = asyncio.create_task(self._watch(patience))
                try:
                    return await self._acquire.__aenter__()
                finally:
                    watching.cancel()
        except TimeoutError:
            if patience.expired():
                raise ClientGone from None
            raise

    async def _watch(self, patience: asyncio.Timeout) -> None:
        """End the acquire by a timeout when the client hangs up."""
        if await self._response.read_until_disconnect():
            patience.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(self, *error: Any) -> None:
        await self._acquire.__aexit__(*error)

"""Django middleware, for WSGI and ASGI.

    MIDDLEWARE = ["zae_limiter.web.django.RateLimitMiddleware", ...]
    ZAE_LIMITER = {
        "LIMITER": "shop.limits.limiter",  # the limiter, or a function that returns it
        "KEY": "shop.limits.key",  # a function of the request
        "RESOURCE": "api",
        "COST": {"rpm": 1},
    }

Other settings: ``SKIP``, ``KEY_OPTIONAL``, ``KNOWN_ONLY``, ``DETAILS``, ``COST_AFTER``, ``STYLE``,
and ``OPTIONS`` for the options of acquire. ``KEY``, ``RESOURCE`` and ``COST`` may be async under
ASGI. Without ``LIMITER``, the middleware only answers rejections that views raise.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction as is_async
from typing import Any, Final, Self

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string

from zae_limiter.runtime.background import ALastCalls
from zae_limiter.runtime.finishing import ashield
from zae_limiter.web.answers import Refusal, find_error, lease_headers, refusal, unless_present
from zae_limiter.web.options import RULE_OPTIONS, check_settings
from zae_limiter.web.rules import WebCharge, WebOutcome, WebRule

AWAITED_UNDER_ASGI: Final = ("key", "resource", "cost")
SETTINGS = ("LIMITER", *[name.upper() for name in RULE_OPTIONS], "OPTIONS")

# An acquire may wait in its thread for a slot until another request ends. So acquires and ends have
# thread pools of their own: neither an end nor a view, which may use the event loop's threads, has
# to wait behind such an acquire.
_ACQUIRES: Final = ThreadPoolExecutor(64, "zael-acquire")
_ENDS: Final = ThreadPoolExecutor(8, "zael-end")


class RateLimitMiddleware:
    """Charges every request; views find the lease as ``request.lease``.

    A rejection becomes a 429, even if a view raises it, or a streaming response before its first
    bytes. Under WSGI the limiter is a ``SyncRateLimiter``. Under ASGI it may also be a
    ``RateLimiter``; a ``SyncRateLimiter`` runs in threads there.

    The lease always ends with the request, even if the response is never sent.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        options = _settings()
        limiter = _imported(options.get("LIMITER"))
        self._limiter = limiter() if callable(limiter) else limiter
        self._rule = WebRule(
            key=_imported(options.get("KEY")),
            resource=options.get("RESOURCE", "api"),
            cost=options.get("COST"),
            cost_after=_imported(options.get("COST_AFTER")),
            skip=_imported(options.get("SKIP")),
            style=options.get("STYLE", "ietf"),
            key_optional=options.get("KEY_OPTIONAL", False),
            known_only=options.get("KNOWN_ONLY", False),
            details=options.get("DETAILS", False),
            options=options.get("OPTIONS", {}),
        )
        is_asgi = iscoroutinefunction(get_response)
        awaited = AWAITED_UNDER_ASGI if is_asgi else ()
        self._rule.check(self._limiter, awaited=awaited, kind="any")
        self._is_async_limiter = self._limiter is not None and is_async(self._limiter.is_available)
        if is_asgi:
            markcoroutinefunction(self)
        elif self._is_async_limiter:
            raise ImproperlyConfigured("ZAE_LIMITER: under WSGI, LIMITER must be a SyncRateLimiter")

    def __call__(self, request: HttpRequest) -> Any:
        if not hasattr(request, "lease") or self._limiter is not None:
            request.lease = None
        if iscoroutinefunction(self):
            return self._answer_async(request)
        try:
            return self._serve(request)
        except Exception as error:  # noqa: BLE001 - raised again unless it is a rejection
            return self._answer(error)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer a rejection that a view has raised."""
        answer = self._refusal(error)
        return None if answer is None else _response(answer)

    def _answer(self, error: Exception) -> HttpResponse:
        answer = self._refusal(error)
        if answer is None:
            raise error
        return _response(answer)

    def _refusal(self, error: BaseException) -> Refusal | None:
        answered = find_error(error)
        if answered is None:
            return None
        return refusal(answered, self._rule.style, details=self._rule.details)

    def _add_headers(self, response: HttpResponseBase, lease: Any) -> None:
        headers = lease_headers(lease, self._rule.style)
        for name, value in unless_present(headers, response.headers).items():
            response[name] = value

    # --- WSGI

    def _serve(self, request: HttpRequest) -> HttpResponseBase:
        charge = None if self._limiter is None else self._rule.charge(request)
        if charge is None:
            return self._with_first_bytes(self.get_response(request))
        acquire = self._rule.acquire(self._limiter, charge)
        lease = request.lease = acquire.__enter__()
        end = _SyncEnd(self._rule, request, acquire, lease)
        try:
            response = self._with_first_bytes(self.get_response(request))
            end.status = response.status_code
            self._add_headers(response, lease)
            if response.streaming:
                limited = _counted_body if response.is_async else _limited_body
                response.streaming_content = limited(response.streaming_content, end)
                return response
            end.size, end.is_complete = len(response.content), True
        except BaseException as error:
            end.refusal = self._refusal(error)
            end.run(error)
            raise
        end.run()
        return response

    def _with_first_bytes(self, response: HttpResponseBase) -> HttpResponseBase:
        """Read the first bytes of a stream, so that a rejection in it can still be answered.

        An async stream is left out: under WSGI, Django itself reads it to its end.
        """
        if response.streaming and not response.is_async:
            content = iter(response.streaming_content)
            first = next(content, None)
            response.streaming_content = _joined(first, content)
        return response

    # --- ASGI

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return await self._serve_async(request)
        except Exception as error:  # noqa: BLE001 - raised again unless it is a rejection
            return self._answer(error)

    async def _serve_async(self, request: HttpRequest) -> HttpResponseBase:
        charge = None if self._limiter is None else await self._rule.charge_async(request)
        if charge is None:
            return await self._with_first_bytes_async(await self.get_response(request))
        acquire = await self._acquire_async(charge)
        lease = request.lease = await acquire.__aenter__()
        end = _AsyncEnd(self._rule, request, acquire, lease)
        try:
            response = await self._with_first_bytes_async(await self.get_response(request))
            end.status = response.status_code
            self._add_headers(response, lease)
            if response.streaming:
                content = _as_async(response.streaming_content)
                response.streaming_content = _AsyncLimitedBody(content, end)
                return response
            end.size, end.is_complete = len(response.content), True
        except BaseException as error:
            end.refusal = self._refusal(error)
            await end.run(error)
            raise
        await end.run()
        return response

    async def _acquire_async(self, charge: WebCharge) -> Any:
        if self._is_async_limiter:
            return await self._rule.acquire_async(self._limiter, charge)
        return _InThreads(lambda: self._rule.acquire(self._limiter, charge))

    async def _with_first_bytes_async(self, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming:
            content = _as_async(response.streaming_content)
            first = await anext(content, None)
            response.streaming_content = _joined_async(first, content)
        return response


def _response(answer: Refusal) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))


def _settings() -> dict[str, Any]:
    given = {name.upper(): value for name, value in getattr(settings, "ZAE_LIMITER", {}).items()}
    problem = check_settings(given, SETTINGS)
    if problem is not None:
        raise ImproperlyConfigured(f"ZAE_LIMITER: {problem}")
    return given


def _imported(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value


# --- streams


def _joined(first: bytes | None, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first is not None:
        yield first
        yield from rest


async def _joined_async(first: bytes | None, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first is not None:
        yield first
        async for chunk in rest:
            yield chunk


def _as_async(content: Any) -> AsyncIterator[bytes]:
    if hasattr(content, "__aiter__"):
        return aiter(content)
    return _in_threads(iter(content))


async def _in_threads(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read a sync stream in threads, chunk by chunk. Django would read the whole stream first."""
    while (chunk := await sync_to_async(lambda: next(content, None))()) is not None:
        yield chunk


def _limited_body(content: Iterable[bytes], end: _SyncEnd) -> Iterator[bytes]:
    """Count the bytes of a stream. The request ends with its last byte or with an error."""
    try:
        for chunk in content:
            end.size += len(chunk)
            yield chunk
        end.is_complete = True
    finally:
        end.run()


async def _counted_body(content: AsyncIterator[bytes], end: _SyncEnd) -> AsyncIterator[bytes]:
    """Count the bytes of an async stream under WSGI. Closing the request ends the lease."""
    async for chunk in content:
        end.size += len(chunk)
        yield chunk
    end.is_complete = True


class _AsyncLimitedBody:
    """Counts the bytes of an async stream, and ends the request even if the stream is dropped.

    If the client hangs up while another middleware works on the response, Django drops the stream
    without closing it. A generator that was never started would not notice that.
    """

    def __init__(self, content: AsyncIterator[bytes], end: _AsyncEnd) -> None:
        self._content = content
        self._end = end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._content)
        except StopAsyncIteration:
            self._end.is_complete = True
            await self._end.run()
            raise
        except BaseException:
            await self._end.run()
            raise
        self._end.size += len(chunk)
        return chunk

    def __del__(self) -> None:
        self._end.end_detached()


# --- ends


class _RequestEnd:
    """The end of a request, which settles its true cost and ends its lease, once.

    ``size`` is the number of bytes that were passed on; ``is_complete`` says that they are all.
    """

    def __init__(self, rule: WebRule, request: HttpRequest, acquire: Any, lease: Any) -> None:
        self._rule = rule
        self._request = request
        self._acquire = acquire
        self._lease = lease
        self._lock = threading.Lock()
        self.status: int | None = None
        self.size = 0
        self.is_complete = False
        self.is_over = False
        self.refusal: Refusal | None = None  # the client gets it in place of a response
        # Django closes the request together with the response that it has sent. That may be an
        # error page by which another middleware has replaced the limited response.
        self._close_request = request.close
        request.close = self._close

    def _close(self) -> None:
        vars(self._request).pop("close", None)  # otherwise the two would refer to each other
        try:
            self._close_request()
        finally:
            self.end_detached()

    def end_detached(self) -> None:
        """End the lease from outside of the request's code, unless its end has begun."""
        raise NotImplementedError

    def _begins(self) -> bool:
        """Note that the end has begun; return False if it had begun before."""
        with self._lock:
            begins, self.is_over = not self.is_over, True
        return begins

    def _outcome(self) -> WebOutcome:
        if self.refusal is not None:
            return WebOutcome.of_refusal(self.refusal)
        return WebOutcome(self.status, self.size, self.is_complete)


class _SyncEnd(_RequestEnd):
    """The end of a request under WSGI."""

    def run(self, error: BaseException | None = None) -> None:
        """Settle the cost and end the lease. Only the first call has an effect."""
        if not self._begins():
            return
        try:
            self._rule.settle(self._lease, self._request, self._outcome())
        finally:
            self._acquire.__exit__(None if error is None else type(error), error, None)

    def end_detached(self) -> None:
        """End the lease in this thread, since under WSGI a request has its own thread."""
        self.run()


class _AsyncEnd(_RequestEnd):
    """The end of a request under ASGI, which a cancellation does not stop."""

    def __init__(self, rule: WebRule, request: HttpRequest, acquire: Any, lease: Any) -> None:
        super().__init__(rule, request, acquire, lease)
        self._background = ALastCalls()

    async def run(self, error: BaseException | None = None) -> None:
        """Settle the cost and end the lease. Only the first call has an effect."""
        if self._begins():
            await ashield(lambda: self._run(error))

    def end_detached(self) -> None:
        """End the lease on the event loop, since Django closes requests in threads."""
        if not self.is_over:
            self._background.run(self.run)

    async def _run(self, error: BaseException | None) -> None:
        try:
            await self._rule.settle_async(self._lease, self._request, self._outcome())
        finally:
            await self._acquire.__aexit__(None if error is None else type(error), error, None)


class _InThreads:
    """An acquire of a SyncRateLimiter, for async code."""

    def __init__(self, make_acquire: Callable[[], Any]) -> None:
        self._make_acquire = make_acquire
        self._acquire: Any = None
        self._lease: Any = None

    async def __aenter__(self) -> Any:
        try:
            await ashield(lambda: _in_thread(_ACQUIRES, self._enter))
        except asyncio.CancelledError:
            if self._lease is not None:  # the request will not be served, so it costs nothing
                self._lease.settle(dict.fromkeys(self._lease.consumed, 0))
                await self.__aexit__(None, None, None)
            raise
        return self._lease

    def _enter(self) -> None:
        self._acquire = self._make_acquire()
        self._lease = self._acquire.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        await ashield(lambda: _in_thread(_ENDS, self._acquire.__exit__, *error))


async def _in_thread(
    threads: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any
) -> Any:
    return await sync_to_async(function, thread_sensitive=False, executor=threads)(*arguments)

"""Django middleware, for WSGI and ASGI.

    MIDDLEWARE = ["zae_limiter.web.django.RateLimitMiddleware", ...]
    ZAE_LIMITER = {
        "LIMITER": "shop.limits.limiter",  # the limiter, or a function that returns it
        "KEY": "shop.limits.key",  # a function of the request; None leaves it unlimited
        "RESOURCE": "api",
        "COST": {"rpm": 1},
    }

Other settings: ``COST_AFTER``, ``STYLE`` and ``OPTIONS`` of acquire. Without ``LIMITER`` only
rejections that the views raise are answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from inspect import iscoroutinefunction as is_async
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.module_loading import import_string

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.web.rules import WebOutcome, WebRule, find_error, is_bad_key, refusal


class RateLimitMiddleware:
    """Charges every request; views find the lease as ``request.lease``.

    A rejection becomes a 429, also one that a view raises, or that a streaming response raises
    before its first bytes. Under WSGI the limiter is a ``SyncRateLimiter``; under ASGI it may be
    either, and a sync one runs in threads.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        options = {name.upper(): value for name, value in _settings().items()}
        limiter = _imported(options.get("LIMITER"))
        self._limiter = limiter() if callable(limiter) else limiter
        self._rule = WebRule(
            _imported(options.get("KEY")),
            options.get("RESOURCE", "api"),
            options.get("COST"),
            _imported(options.get("COST_AFTER")),
            options.get("STYLE", "ietf"),
            options.get("OPTIONS", {}),
        )
        self._rule.check(self._limiter)
        self._is_async_limiter = self._limiter is not None and is_async(self._limiter.is_available)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
        elif self._is_async_limiter:
            raise ImproperlyConfigured("ZAE_LIMITER: under WSGI, LIMITER must be a SyncRateLimiter")

    def __call__(self, request: HttpRequest) -> Any:
        if iscoroutinefunction(self):
            return self._answer_async(request)
        try:
            return self._serve(request)
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            return self._refused(error)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer a rejection that a view has raised."""
        rejection = find_error(error)
        return None if rejection is None else self._refused(rejection)

    def _refused(self, error: Any) -> HttpResponse:
        if isinstance(error, ValidationError) and not is_bad_key(error):
            raise error  # a mistake of the settings
        answer = refusal(error, self._rule.style)
        return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))

    # --- WSGI

    def _serve(self, request: HttpRequest) -> HttpResponseBase:
        charge = None if self._limiter is None else self._rule.charge(request)
        if charge is None:
            return self._with_first_bytes(self.get_response(request))
        acquire = self._rule.acquire(self._limiter, charge)
        lease = acquire.__enter__()
        request.lease = lease
        end = _FinalCost(self._rule, request, lease)
        try:
            response = self._with_first_bytes(self.get_response(request))
        except BaseException as error:
            acquire.__exit__(type(error), error, None)
            raise
        _add_headers(response, lease.headers(self._rule.style))
        if response.streaming:
            content: Iterable[bytes] = response.streaming_content
            body = _settled_by(end, response.status_code, content, acquire)
            response.streaming_content = body
        else:
            end.settle(response.status_code, len(response.content), True)
            acquire.__exit__(None, None, None)
        return response

    def _with_first_bytes(self, response: HttpResponseBase) -> HttpResponseBase:
        """Read the first bytes of a stream, so that a rejection in it can still be answered."""
        if response.streaming and not response.is_async:
            content = iter(response.streaming_content)
            first = next(content, None)
            response.streaming_content = _joined(first, content)
        return response

    # --- ASGI

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return await self._serve_async(request)
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            return self._refused(error)

    async def _serve_async(self, request: HttpRequest) -> HttpResponseBase:
        charge = None if self._limiter is None else self._rule.charge(request)
        if charge is None:
            return await self._with_first_bytes_async(await self.get_response(request))
        acquire = _Acquire(self._rule.acquire(self._limiter, charge), self._is_async_limiter)
        lease = await acquire.enter()
        request.lease = lease
        end = _FinalCost(self._rule, request, lease)
        try:
            response = await self._with_first_bytes_async(await self.get_response(request))
        except BaseException as error:
            await acquire.leave(error)
            raise
        _add_headers(response, lease.headers(self._rule.style))
        if response.streaming:
            content = _as_async(response.streaming_content)
            body = _settled_by_async(end, response.status_code, content, acquire)
            response.streaming_content = body
        else:
            await end.settle_async(response.status_code, len(response.content), True)
            await acquire.leave(None)
        return response

    async def _with_first_bytes_async(self, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming:
            content = _as_async(response.streaming_content)
            first = await anext(content, None)
            response.streaming_content = _joined_async(first, content)
        return response


def _settings() -> dict[str, Any]:
    return getattr(settings, "ZAE_LIMITER", {})


def _imported(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value


def _add_headers(response: HttpResponseBase, headers: dict[str, str]) -> None:
    for name, value in headers.items():
        response[name] = value


class _FinalCost:
    """Settles the true cost of a request when its response has ended."""

    def __init__(self, rule: WebRule, request: HttpRequest, lease: Any) -> None:
        self._rule = rule
        self._request = request
        self._lease = lease

    def settle(self, status: int, size: int, complete: bool) -> Any:
        """Settle; for an async lease the result is to be awaited."""
        cost = self._rule.final_cost(self._request, WebOutcome(status, size, complete))
        return None if cost is None else self._lease.settle(cost)

    async def settle_async(self, status: int, size: int, complete: bool) -> None:
        settling = self.settle(status, size, complete)
        if settling is not None:
            await settling


class _Acquire:
    """An acquire of either tree, for async code."""

    def __init__(self, acquire: Any, is_async_limiter: bool) -> None:
        self._acquire = acquire
        self._is_async = is_async_limiter

    async def enter(self) -> Any:
        if self._is_async:
            return await self._acquire.__aenter__()
        return await sync_to_async(self._acquire.__enter__, thread_sensitive=False)()

    async def leave(self, error: BaseException | None) -> None:
        arguments = (None if error is None else type(error), error, None)
        if self._is_async:
            await self._acquire.__aexit__(*arguments)
        else:
            await sync_to_async(self._acquire.__exit__, thread_sensitive=False)(*arguments)


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
    """Read a sync stream in threads, chunk by chunk; Django itself would read it whole first."""
    while (chunk := await sync_to_async(lambda: next(content, None))()) is not None:
        yield chunk


def _settled_by(
    end: _FinalCost, status: int, content: Iterable[bytes], acquire: Any
) -> Iterator[bytes]:
    size, complete = 0, False
    try:
        for chunk in content:
            size += len(chunk)
            yield chunk
        complete = True
    finally:
        end.settle(status, size, complete)
        acquire.__exit__(None, None, None)


async def _settled_by_async(
    end: _FinalCost, status: int, content: AsyncIterator[bytes], acquire: _Acquire
) -> AsyncIterator[bytes]:
    size, complete = 0, False
    try:
        async for chunk in content:
            size += len(chunk)
            yield chunk
        complete = True
    finally:
        await end.settle_async(status, size, complete)
        await acquire.leave(None)

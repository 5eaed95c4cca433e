"""WSGI middleware, and its installation in Flask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.web.answers import (
    Headers,
    Refusal,
    find_error,
    lease_headers,
    refusal,
    unless_present,
)
from zae_limiter.web.options import SYNC
from zae_limiter.web.requests import WebRequest
from zae_limiter.web.rules import WebOutcome, WebRule

if TYPE_CHECKING:
    from zae_limiter._sync.lease import SyncLease
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter.models.status import HeaderStyle

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Iterable[bytes]]


class WsgiMiddleware:
    """Charges every request before it reaches the application; the lease lasts until its end.

    The application finds the lease as ``environ["zae_limiter.lease"]``. A rejection, here or in the
    application, becomes a 429, even in a streaming generator that has not sent anything yet.
    Without a limiter, the middleware only answers such rejections.

    A request without a key is answered by 401; with ``key_optional`` it is not limited, and its
    lease is None. The same holds for requests for which ``skip`` returns true, such as health
    checks. With ``known_only``, keys of entities that are not registered are answered by 401. The
    body of a 429 names limits only if ``details`` is set.
    """

    def __init__(
        self,
        app: App,
        /,
        limiter: SyncRateLimiter | None = None,
        *,
        key: Callable[[WebRequest], str | None] | str | None = None,
        resource: Callable[[WebRequest], str] | str = "api",
        cost: Callable[[WebRequest], Mapping[str, int]] | Mapping[str, int] | None = None,
        cost_after: Callable[[WebRequest, WebOutcome], Mapping[str, int] | None] | None = None,
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
        self._rule.check(limiter, awaited=(), kind=SYNC)

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        request = WebRequest.of_environ(environ)
        response = _WsgiResponse(self._rule, request, start_response)
        try:
            self._charge(request, environ, response)
            response.open(self.app(environ, response.start))
        except BaseException as error:
            answer = None if response.is_started else self._answer(error)
            response.close(error, answer)
            if answer is None:
                raise
            start_response(answer.status_line, answer.headers)
            return [answer.body]
        return response

    def _charge(self, request: WebRequest, environ: Environ, response: _WsgiResponse) -> None:
        if self._limiter is None:
            environ.setdefault("zae_limiter.lease", None)  # an outer middleware may have set one
            return
        environ["zae_limiter.lease"] = None
        charge = self._rule.charge(request)
        if charge is not None:
            acquire = self._rule.acquire(self._limiter, charge)
            environ["zae_limiter.lease"] = response.enter(acquire)

    def _answer(self, error: BaseException) -> Refusal | None:
        answered = find_error(error)
        if answered is None:
            return None
        return refusal(answered, self._rule.style, details=self._rule.details)


class _WsgiResponse:
    """The body of a response. The start is held back until the first bytes of the body."""

    def __init__(self, rule: WebRule, request: WebRequest, start_response: Start) -> None:
        self._rule = rule
        self._request = request
        self._start_response = start_response
        self._acquire: Any = None
        self._lease: SyncLease | None = None
        self._body: Iterable[bytes] = ()
        self._rest: Iterator[bytes] = iter(())
        self._first: list[bytes] = []
        self._started_with: tuple[str, Headers] | None = None
        self._write: Any = None  # the server's write function; None until the response starts
        self._ended = False
        self._bytes = 0

    def enter(self, acquire: Any) -> SyncLease:
        self._lease = acquire.__enter__()
        self._acquire = acquire
        return self._lease

    def start(self, status: str, headers: Headers, exc_info: Any = None) -> Callable[..., Any]:
        """Replace the server's ``start_response``. An error page may call this again."""
        if exc_info and self.is_started:
            return self._start_response(status, headers, exc_info)  # type: ignore[no-any-return]
        self._started_with = status, headers

        def write(data: bytes) -> None:
            self._bytes += len(data)
            self._flush()(data)

        return write

    def open(self, body: Iterable[bytes]) -> None:
        """Read the body up to its first bytes, and let the server start the response."""
        self._body, self._rest = body, iter(body)
        for chunk in self._rest:
            if chunk:
                self._first.append(chunk)
                break
        if self._started_with is not None:
            self._flush()

    def _flush(self) -> Callable[[bytes], Any]:
        """Start the response at the server, unless it is started."""
        if self._write is None:
            assert self._started_with is not None, "an application calls start_response first"
            status, headers = self._started_with
            if self._lease is not None:
                own = [name for name, _ in headers]
                added = unless_present(lease_headers(self._lease, self._rule.style), own)
                headers = [*headers, *added.items()]
            self._write = self._start_response(status, headers)
        return self._write  # type: ignore[no-any-return]

    @property
    def is_started(self) -> bool:
        return self._write is not None

    def __iter__(self) -> _WsgiResponse:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = self._first.pop() if self._first else next(self._rest)
        except StopIteration:
            self._ended = True
            raise
        self._bytes += len(chunk)
        return chunk

    def close(self, error: BaseException | None = None, answer: Refusal | None = None) -> None:
        """End the response and the lease. Servers always call this at the end of a response.

        ``answer`` is the refusal that the client gets in place of this response, if any.
        """
        try:
            close = getattr(self._body, "close", None)
            self._body = ()
            if close is not None:
                close()
        finally:
            acquire, self._acquire = self._acquire, None
            if acquire is not None:
                self._settle(acquire, error, answer)

    def _settle(self, acquire: Any, error: BaseException | None, answer: Refusal | None) -> None:
        assert self._lease is not None
        try:
            outcome = self._outcome() if answer is None else WebOutcome.of_refusal(answer)
            self._rule.settle(self._lease, self._request, outcome)
        finally:
            acquire.__exit__(None if error is None else type(error), error, None)

    def _outcome(self) -> WebOutcome:
        if self._started_with is None or not self.is_started:
            return WebOutcome(None, self._bytes, self._ended)
        return WebOutcome(int(self._started_with[0][:3]), self._bytes, self._ended)


def init_flask(app: Any, limiter: SyncRateLimiter | None = None, **options: Any) -> None:
    """Limit a Flask application by the middleware, and answer rejections in its views by 429.

    The options are those of ``WsgiMiddleware``. Views find the lease as
    ``request.environ["zae_limiter.lease"]``. Without a limiter, only rejections are answered.
    """
    style, details = options.get("style", "ietf"), options.get("details", False)

    def answer(error: Any) -> Any:
        refused = refusal(error, style, details=details)
        return app.response_class(refused.body, refused.status, refused.headers)

    app.register_error_handler(RateLimitExceeded, answer)
    app.register_error_handler(RateLimiterUnavailable, answer)
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, limiter, **options)

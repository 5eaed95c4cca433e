"""The gate before every route: hosts, origins, sites, sessions and sizes of requests."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from zae_limiter_dashboard.session import Sessions
    from zae_limiter_dashboard.settings import DashboardSettings

MAX_BODY = 1_000_000  # bytes: a manifest of some 20,000 entities
MAX_QUERY = 8_000  # bytes of a query: the longest ids take 256 characters each
OPEN_PATHS = ("/", "/session")  # besides the static files
STATIC = "/static/"
SAME_ORIGIN = "same-origin"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # With no-referrer, browsers would also hide the origin of the page's own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class RefusedRequest(NamedTuple):
    """The answer to a request that no route sees."""

    status: int
    text: str


class RequestGuard:
    """ASGI middleware that refuses requests from other sites, without a session, or too large.

    Every answer gets headers that forbid foreign content, frames, referrers and caches.
    """

    def __init__(self, app: ASGIApp, settings: DashboardSettings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page has no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self.refusal(scope)
        protected = _with_headers(send)
        if refusal is not None:
            answer = PlainTextResponse(refusal.text + "\n", refusal.status)
            await answer(scope, receive, protected)
            return
        bounded = BoundedBody(receive)
        try:
            await self._app(scope, bounded, protected)
        except BodyTooLarge:
            answer = PlainTextResponse(TOO_LARGE.text + "\n", TOO_LARGE.status)
            await answer(scope, receive, protected)

    def refusal(self, scope: Scope) -> RefusedRequest | None:
        """Return the reason why a request is refused; None if it may pass."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        if headers.get("host", "").lower() not in self._settings.hosts:
            return RefusedRequest(
                400, "this host is not served here; open the link that the command printed"
            )
        if method not in ("GET", "HEAD", "POST"):
            return RefusedRequest(405, "this method is not offered")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._settings.origins:
            return RefusedRequest(403, "requests from other origins are refused")
        if method == "POST" and origin is None:
            return RefusedRequest(403, "a write must name its origin")
        if not self._is_same_site(headers, method):
            return RefusedRequest(
                403, "requests from other sites are refused; open the page itself"
            )
        if len(scope["query_string"]) > MAX_QUERY:
            return RefusedRequest(414, "the address is too long")
        if _length(headers) > MAX_BODY:
            return TOO_LARGE
        if path in OPEN_PATHS or path.startswith(STATIC):
            return None
        if not self._sessions.knows(session_cookie(headers, self._sessions)):
            return RefusedRequest(
                401, "no session: open the link that the command printed, with its token"
            )
        return None

    @staticmethod
    def _is_same_site(headers: Headers, method: str) -> bool:
        """Tell whether the page itself asks, or a person who has typed or opened its address."""
        site = headers.get("sec-fetch-site")
        if site == SAME_ORIGIN:
            return True
        is_navigation = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        return site == "none" and is_navigation


TOO_LARGE = RefusedRequest(413, f"the request has more than {MAX_BODY:,} bytes")


class BodyTooLarge(Exception):
    """The body of a request without a length has become too long."""


class BoundedBody:
    """Receives a body of at most ``MAX_BODY`` bytes, whether or not its length was announced."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > MAX_BODY:
            raise BodyTooLarge
        return message


def session_cookie(headers: Headers, sessions: Sessions) -> str | None:
    """Return the secret in the cookie of this server."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(sessions.cookie_name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() else MAX_BODY + 1


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending

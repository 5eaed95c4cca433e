"""The routes that open and end a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, RedirectResponse, Response

from zae_limiter.bounded_json import parse_bounded
from zae_limiter_dashboard.guard import session_cookie
from zae_limiter_dashboard.rendering import body_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from zae_limiter_dashboard.rendering import Ask, Renderer
    from zae_limiter_dashboard.session import Sessions
    from zae_limiter_dashboard.settings import DashboardSettings

MAX_TOKEN_BODY = 1000  # characters; a token has 43


class SessionRoutes:
    """Exchanges the token of the command for a session, and leads to the first page."""

    def __init__(
        self, renderer: Renderer, settings: DashboardSettings, sessions: Sessions, namespace: str
    ) -> None:
        self._renderer = renderer
        self._settings = settings
        self._sessions = sessions
        self._namespace = namespace

    def shell(self, _request: Request) -> Response:
        """Return a page without data, whose script exchanges the token for a session."""
        return self._renderer.plain("shell.html")

    async def session(self, request: Request) -> Response:
        """Exchange a token for a cookie, which scripts cannot read and other sites do not send."""
        body = await body_of(request)
        token = None if body is None else _token_in(body)
        secret = None if token is None else self._sessions.open(token)
        if secret is None:
            return JSONResponse({"error": "the token is wrong"}, 401)
        answer = JSONResponse({"next": f"/n/{self._namespace}/overview"})
        answer.set_cookie(
            self._sessions.cookie_name,
            secret,
            path="/",
            secure=self._settings.is_secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def end_session(self, request: Request) -> Response:
        """End the session of this browser."""
        self._sessions.close(session_cookie(request.headers, self._sessions))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(self._sessions.cookie_name, path="/")
        return answer

    def home(self, ask: Ask) -> Response:
        """Lead to the overview of the namespace of the command."""
        return RedirectResponse(f"/n/{ask.namespace}/overview", 303)


def _token_in(body: str) -> str | None:
    """Return the token that a body has as JSON; None if it has none. Anybody may send one."""
    try:
        found = parse_bounded(body, longest=MAX_TOKEN_BODY)
    except ValueError:
        return None
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, str) else None

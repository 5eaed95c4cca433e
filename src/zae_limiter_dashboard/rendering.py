"""Requests in plain values, and answers rendered from templates."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.naming import check_entity_id
from zae_limiter_dashboard.live import LiveParts
from zae_limiter_dashboard.problems import problem_of
from zae_limiter_dashboard.templating import environment
from zae_limiter_ops.views.formatting import LEVELS

if TYPE_CHECKING:
    from starlette.requests import Request

    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_ops.views.advice import GivenOptions

MAX_FIELDS = 50
SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in plain values."""

    namespace: str
    path: str
    query: dict[str, str]
    form: dict[str, str]
    headers: Mapping[str, str]
    is_post: bool

    @property
    def is_live(self) -> bool:
        """Whether only the live part of a page is asked for."""
        return self.path.endswith("/live")

    def entity_id(self) -> str:
        return check_entity_id(self.query.get("id", ""))


Handler = Callable[[Ask], Response]


class Renderer:
    """Runs handlers and renders what they return; errors of the store become messages."""

    def __init__(self, settings: DashboardSettings, given: GivenOptions, namespace: str) -> None:
        self._settings = settings
        self._given = given
        self._namespace = namespace  # of a request that names none
        self._templates = environment()
        self._live = LiveParts()

    def endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a route that runs the handler in a thread."""

        async def answer(request: Request) -> Response:
            form: dict[str, str] = {}
            if request.method == "POST":
                body = await body_of(request)
                if body is None:
                    return Response(status_code=400)
                try:
                    form = _form_in(body)
                except ValueError:
                    return PlainTextResponse(f"a form has at most {MAX_FIELDS} fields\n", 400)
            ask = Ask(
                namespace=request.path_params.get("namespace", self._namespace),
                path=request.url.path,
                query=dict(request.query_params),
                form=form,
                headers=request.headers,
                is_post=request.method == "POST",
            )
            return await run_in_threadpool(self._timed_answer, handler, ask)

        return answer

    def _timed_answer(self, handler: Handler, ask: Ask) -> Response:
        """Return the answer with its time and its CPU time, for the tools of a browser."""
        started, cpu_started = time.perf_counter(), time.thread_time()
        answer = self._answer(handler, ask)
        total_ms = (time.perf_counter() - started) * 1000
        cpu_ms = (time.thread_time() - cpu_started) * 1000
        answer.headers["Server-Timing"] = f"cpu;dur={cpu_ms:.1f}, total;dur={total_ms:.1f}"
        return answer

    def _answer(self, handler: Handler, ask: Ask) -> Response:
        try:
            return handler(ask)
        except ZAELimiterError as error:
            problem = problem_of(error, self._given)
            template = "problem_part.html" if ask.is_live else "problem.html"
            # A live part is swapped in with its message, and the next refresh tries again.
            status = 200 if ask.is_live else problem.status
            retries = problem.status == SERVICE_UNAVAILABLE and not ask.is_post
            return self.html(
                template,
                ask,
                status=status,
                problem=problem,
                retries=retries,
                address=ask.path + (f"?{urlencode(ask.query)}" if ask.query else ""),
            )

    def html(self, template: str, ask: Ask, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._render(template, ask, **values), status)

    def _render(self, template: str, ask: Ask, **values: Any) -> str:
        base = f"/n/{ask.namespace}"
        return self._templates.get_template(template).render(
            namespace=ask.namespace,
            base=base,
            path=ask.path,
            link=lambda page, /, **query: (
                f"{base}/{page}" + (f"?{urlencode(query)}" if query else "")
            ),
            allow_edit=self._settings.allow_edit,
            levels=LEVELS,
            **values,
        )

    def page_or_part(
        self, ask: Ask, template: str, part: str, read: Callable[[], dict[str, Any]]
    ) -> Response:
        """Render a page, or only its live part, which is made at most every two seconds."""
        address = f"{ask.path}?{urlencode(sorted(ask.query.items()))}"
        if ask.is_live:
            text = self._live.get(address, lambda: self._render(part, ask, **read()))
            return HTMLResponse(text)
        live_query = urlencode(ask.query)
        live_url = f"{ask.path}/live" + (f"?{live_query}" if live_query else "")
        return self.html(template, ask, live_url=live_url, **read())

    def forget_live_parts(self) -> None:
        """Render all live parts again: an action has changed something."""
        self._live.clear()

    def plain(self, template: str) -> HTMLResponse:
        """Render a page without any data."""
        return HTMLResponse(self._templates.get_template(template).render())


async def body_of(request: Request) -> str | None:
    """Return the body of a request as text; None if the client has hung up."""
    try:
        return (await request.body()).decode("utf-8", "replace")
    except ClientDisconnect:
        return None


def _form_in(body: str) -> dict[str, str]:
    """Return the fields of a form; raise ValueError if there are too many."""
    return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))

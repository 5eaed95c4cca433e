"""The ASGI application: routes behind the guard."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from zae_limiter_dashboard.action_routes import ActionRoutes
from zae_limiter_dashboard.guard import RequestGuard
from zae_limiter_dashboard.pages import PageRoutes
from zae_limiter_dashboard.rendering import Renderer
from zae_limiter_dashboard.session import Sessions
from zae_limiter_dashboard.session_routes import SessionRoutes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from zae_limiter_dashboard.settings import DashboardSettings
    from zae_limiter_dashboard.store import Stores
    from zae_limiter_ops.views.advice import GivenOptions


STATIC = Path(__file__).parent / "static"


def make_app(
    stores: Stores,
    settings: DashboardSettings,
    token: str,
    given: GivenOptions,
    namespace: str = "default",
) -> Starlette:
    """Return the application; ``token`` opens sessions, ``namespace`` is shown first."""
    sessions = Sessions(token, settings.port)
    renderer = Renderer(settings, given, namespace)
    opening = SessionRoutes(renderer, settings, sessions, namespace)
    pages = PageRoutes(renderer, stores, settings, given)
    actions = ActionRoutes(renderer, stores, settings, given)
    live = {
        "overview": pages.overview,
        "resources": pages.resources,
        "resource": pages.resource,
        "entity": pages.entity,
    }
    others = {
        "find": pages.find,
        "entity/explain": pages.explain,
        "limits": pages.limits,
        "namespaces": pages.namespaces,
        "usage": pages.usage,
        "usage.csv": pages.usage,
        "usage.json": pages.usage,
    }
    read = [
        Route(f"/n/{{namespace}}/{path}", renderer.endpoint(page), methods=["GET"])
        for path, page in [
            *live.items(),
            *((f"{path}/live", page) for path, page in live.items()),
            *others.items(),
        ]
    ]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        stores.close()

    return Starlette(
        routes=[
            Route("/", opening.shell, methods=["GET"]),
            Route("/session", opening.session, methods=["POST"]),
            Route("/session/end", opening.end_session, methods=["POST"]),
            Route("/home", renderer.endpoint(opening.home), methods=["GET"]),
            *read,
            Route(
                "/n/{namespace}/manifest",
                renderer.endpoint(pages.manifest),
                methods=["GET", "POST"],
            ),
            Route(
                "/n/{namespace}/actions/{name}",
                renderer.endpoint(actions.action),
                methods=["GET", "POST"],
            ),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[Middleware(RequestGuard, settings=settings, sessions=sessions)],
        exception_handlers={404: _not_found, 500: _defect},
        lifespan=lifespan,
    )


def _not_found(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("there is no such page; begin at /\n", 404)


def _defect(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("the page has a defect; the log of the command tells more\n", 500)

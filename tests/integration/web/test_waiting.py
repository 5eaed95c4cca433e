"""Requests that wait for capacity, and clients that hang up meanwhile."""

import asyncio

import pytest
from django.core.handlers.asgi import ASGIHandler
from fastapi import Depends, FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.integration.web import django_site
from tests.support.web_servers import asgi_server, fetch, wait_until
from zae_limiter import Limit, RateLimiter, web

TIMEOUT_S = 60


class Holding:
    """An endpoint that holds the only slot until it is released, and notes whom it serves."""

    def __init__(self):
        self.served = []
        self.bodies = []
        self.release = asyncio.Event()

    async def serve(self, request: Request):
        self.served.append(request.query_params.get("name"))
        self.bodies.append(len(await request.body()))
        await self.release.wait()
        return {}


@pytest.fixture
def holding():
    return Holding()


def by_middleware(limiter, holding):
    app = FastAPI()
    app.add_api_route("/", holding.serve, methods=["GET", "POST"])
    app.add_middleware(web.AsgiMiddleware, limiter, key="key", timeout=TIMEOUT_S)
    return app


def by_dependency(limiter, holding):
    app = FastAPI()
    limited = Depends(web.rate_limit(limiter, key="key", timeout=TIMEOUT_S))
    app.add_api_route("/", holding.serve, methods=["GET", "POST"], dependencies=[limited])
    app.add_middleware(web.AsgiMiddleware)
    return app


class Counting:
    """Counts the requests that are inside of an application."""

    def __init__(self, app):
        self.app = app
        self.inside = 0

    async def __call__(self, scope, receive, send):
        self.inside += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.inside -= 1

    async def wait_for(self, count):
        await wait_until(lambda: self.inside == count)


both = pytest.mark.parametrize("make_app", [by_middleware, by_dependency])


@both
async def test_a_client_that_hangs_up_leaves_the_line(limiter, holding, make_app):
    await limiter.set_limits("key", [Limit.per_minute("rpm", 9), Limit.concurrent("parallel", 1)])
    app = Counting(make_app(limiter, holding))
    async with asgi_server(app) as port:
        base = app.inside  # the lifespan of the application
        first = asyncio.create_task(fetch(port, "/?name=first"))
        await wait_until(lambda: holding.served == ["first"])
        gone = asyncio.create_task(fetch(port, "/?name=gone"))
        await app.wait_for(base + 2)
        last = asyncio.create_task(fetch(port, "/?name=last"))
        await app.wait_for(base + 3)
        gone.cancel()
        await asyncio.wait([gone])
        await app.wait_for(base + 2)
        holding.release.set()
        assert (await first).status == (await last).status == 200
    assert holding.served == ["first", "last"]


async def test_a_client_of_django_that_hangs_up_leaves_the_line(limiter):
    await limiter.set_limits("key", [Limit.per_minute("rpm", 9), Limit.concurrent("parallel", 1)])
    site, key = django_site.current, {"x-api-key": "key"}
    site.clear()
    site |= {"limiter": limiter, "held": [], "release": asyncio.Event()}
    changes = {"COST": {"rpm": 1}, "COST_AFTER": None, "OPTIONS": {"timeout": TIMEOUT_S}}
    app = Counting(django_site.handler(ASGIHandler, **changes))
    async with asgi_server(app) as port:
        first = asyncio.create_task(fetch(port, "/hold?name=first", key))
        await wait_until(lambda: site["held"] == ["first"])
        gone = asyncio.create_task(fetch(port, "/hold?name=gone", key))
        await app.wait_for(2)
        last = asyncio.create_task(fetch(port, "/hold?name=last", key))
        await app.wait_for(3)
        gone.cancel()
        await asyncio.wait([gone])
        await app.wait_for(2)
        site["release"].set()
        assert (await first).status == (await last).status == 200
    assert site["held"] == ["first", "last"]


@both
async def test_a_client_that_hangs_up_gives_its_reservation_back(limiter, holding, make_app):
    slow = Limit.custom("rpm", capacity=1, refill_amount=1, refill_period_seconds=50)
    await limiter.set_limits("key", [slow])
    holding.release.set()
    async with asgi_server(make_app(limiter, holding)) as port:
        assert (await fetch(port, "/?name=first")).status == 200
        gone = asyncio.create_task(fetch(port, "/?name=gone"))
        await wait_until(lambda: is_reserved(limiter, True))
        gone.cancel()
        await asyncio.wait([gone])
        await wait_until(lambda: is_reserved(limiter, False))
    assert holding.served == ["first"]


async def is_reserved(limiter, reserved):
    return ((await limiter.available("key", "api"))["rpm"] < 0) is reserved


@pytest.mark.each_value_once
@both
@pytest.mark.parametrize("size", [0, 10, 100_000, 2_000_000])
async def test_a_body_that_arrives_meanwhile_reaches_the_application(
    limiter, holding, make_app, size
):
    await limiter.set_limits("key", [Limit.per_minute("rpm", 9), Limit.concurrent("parallel", 1)])
    async with asgi_server(make_app(limiter, holding)) as port:
        first = asyncio.create_task(fetch(port, "/?name=first"))
        await wait_until(lambda: holding.served == ["first"])
        waiting = asyncio.create_task(fetch(port, "/?name=waiting", body=b"x" * size))
        await asyncio.sleep(0.2)
        holding.release.set()
        assert (await first).status == (await waiting).status == 200
    assert holding.bodies == [0, size]


class Outer(BaseHTTPMiddleware):
    """As ``@app.middleware("http")`` of FastAPI: it loses a message if a receive is cancelled."""

    async def dispatch(self, request, call_next):
        return await call_next(request)


@both
async def test_no_body_is_lost_between_the_line_and_the_application(tmp_path, holding, make_app):
    """The body arrives just when the line lets its request pass, or a moment earlier or later."""
    holding.release.set()
    async with RateLimiter(url=f"sqlite:///{tmp_path}/limits.db") as limiter:
        await limiter.set_limits("key", [Limit.per_minute("rpm", 1_000_000)])
        app = make_app(limiter, holding)
        app.add_middleware(Outer)

        async def post_some(port):
            return [(await fetch(port, body=b"x" * 1_000)).status for _ in range(10)]

        async with asgi_server(app) as port, asyncio.timeout(60):
            statuses = await asyncio.gather(*[post_some(port) for _ in range(10)])
    assert statuses == [[200] * 10] * 10
    assert holding.bodies == [1_000] * 100


async def test_a_body_that_is_never_read_leaves_no_task_behind(limiter):
    await limiter.set_limits("key", [Limit.concurrent("parallel", 1)])
    reading = []

    async def receive():
        reading.append(asyncio.current_task())
        await asyncio.Event().wait()  # a server that never tells that the client has gone

    async def send(message):
        pass

    app = web.AsgiMiddleware(JSONResponse({}), limiter, key="key", cost={"parallel": 1}, timeout=9)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    async with limiter.acquire("key", "api", {"parallel": 1}):
        waiting = asyncio.create_task(app(scope, receive, send))
        await wait_until(lambda: reading)
    await waiting
    await wait_until(lambda: all(task.done() for task in reading))

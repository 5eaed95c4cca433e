"""The lifespan of an application opens and closes its limiter."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.support.web_servers import asgi_server, fetch
from zae_limiter import InfrastructureError, Limit, RateLimiter, Repository, SyncRateLimiter, web

LIMITS = [Limit.per_hour("rpm", 2)]
KEY = {"x-api-key": "key"}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/limits.db"


@pytest.fixture
def limiter(url):
    return RateLimiter(url=url, request_timeout=10)


async def set_up(limiter):
    await limiter.set_system_defaults(LIMITS, if_missing=True)


async def hello(request: Request):
    return PlainTextResponse("hello")


def limited(app, limiter):
    app.add_middleware(web.AsgiMiddleware, limiter, key=web.header("x-api-key"))
    app.add_route("/", hello)
    return app


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_a_module_level_application_opens_and_closes_its_limiter(framework, limiter):
    app = limited(framework(lifespan=web.lifespan(limiter, set_up)), limiter)
    assert limiter.repository is None
    for expected in ([200], [200, 429]):  # a server that is started again opens it again
        async with asgi_server(app) as port:
            assert [(await fetch(port, "/", KEY)).status for _ in expected] == expected
            repository = limiter.repository
        assert limiter.repository is None
        with pytest.raises(InfrastructureError, match="closed"):
            await repository.ping()


async def test_without_start_the_first_request_opens_the_limiter(limiter, url):
    app = limited(FastAPI(lifespan=web.lifespan(limiter)), limiter)
    async with RateLimiter(url=url) as operator:
        await set_up(operator)
    async with asgi_server(app) as port:
        assert limiter.repository is None
        assert (await fetch(port, "/", KEY)).status == 200
        assert limiter.repository is not None
    assert limiter.repository is None


def test_a_test_client_without_a_lifespan_uses_another_loop_for_each_request(limiter, url):
    with SyncRateLimiter(url=url) as operator:
        operator.set_system_defaults(LIMITS)
    client = TestClient(limited(FastAPI(lifespan=web.lifespan(limiter)), limiter))
    assert [client.get("/", headers=KEY).status_code for _ in range(3)] == [200, 200, 429]
    asyncio.run(limiter.close())


async def test_an_application_enters_the_lifespan_in_its_own(limiter):
    steps = []

    @asynccontextmanager
    async def own(app):
        steps.append("start")
        async with web.lifespan(limiter, set_up)(app):
            steps.append(limiter.repository is not None)
            yield
        steps.append(limiter.repository is None)

    app = Starlette(routes=[Route("/", hello)], lifespan=own)
    async with asgi_server(app) as port:
        assert (await fetch(port)).status == 200
    assert steps == ["start", True, True]


async def test_a_start_that_fails_ends_the_lifespan_and_closes_the_limiter(limiter):
    async def fail(limiter):
        await limiter.get_entity("user")
        raise RuntimeError("no limits")

    with pytest.raises(RuntimeError, match="no limits"):
        async with web.lifespan(limiter, fail)(None):
            pytest.fail("the application must not start")
    assert limiter.repository is None


async def test_a_repository_that_the_application_has_opened_stays_open():
    async with Repository.open(url="memory://") as repository:
        async with web.lifespan(RateLimiter(repository), set_up)(None):
            pass
        assert await repository.ping()

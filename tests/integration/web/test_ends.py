"""Every end of a request ends its lease: a slot that a lease held is free for the next request."""

import asyncio
import gc
import io
import logging
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from fastapi import Depends, FastAPI
from starlette.responses import JSONResponse, StreamingResponse

from tests.integration.web import django_site
from tests.support.web_servers import (
    asgi_server,
    fetch,
    fetch_sync,
    hang_up,
    wait_until,
    wsgi_server,
)
from zae_limiter import Limit, web

KEY = {"x-api-key": "key"}
# A lease that nobody ends would hold the only slot for an hour.
LIMITS = [
    Limit.per_minute("rpm", 1_000),
    Limit.per_minute("tpm", 100_000),
    Limit.concurrent("parallel", 1, lease_ttl=3_600),
]


@pytest.fixture
async def one_slot(limiter):
    await limiter.set_limits("key", LIMITS, "api")
    return limiter


@pytest.fixture
def one_slot_sync(sync_limiter):
    sync_limiter.set_limits("key", LIMITS, "api")
    return sync_limiter


@pytest.fixture(autouse=True)
def site():
    django_site.configure()
    django_site.current.clear()
    return django_site.current


def drop_response():
    """Raise, as a middleware may around one that has returned a response."""
    raise LookupError("a mistake of another middleware")


async def drop_response_async():
    drop_response()


async def until(condition):
    async def look():
        gc.collect()  # an error that was logged may hold the response in a cycle
        return await condition()

    await wait_until(look)


# --- Django under WSGI


@pytest.mark.parametrize("path", ["/hello?faulty=1", "/stream?faulty=1"])
def test_a_cost_that_cannot_be_found_out_ends_the_lease(site, one_slot_sync, caplog, path):
    site["limiter"] = one_slot_sync
    with wsgi_server(WSGIHandler()) as port, caplog.at_level(logging.ERROR):
        replies = [fetch_sync(port, path, KEY) for _ in range(3)]
    assert [each.status for each in replies] == [200] * 3, "the response stands"
    assert "cost_after failed" in caplog.text
    assert "'key' on 'api'" in caplog.text


def test_a_stream_that_is_never_started_ends_the_lease(site, one_slot_sync):
    """As a server that closes the response of a client that has gone."""
    site["limiter"] = one_slot_sync
    application = WSGIHandler()
    statuses = []
    for _ in range(3):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/stream", "HTTP_X_API_KEY": "key"}
        environ |= {"wsgi.input": io.BytesIO(), "SERVER_NAME": "test", "SERVER_PORT": "80"}
        body = application(environ, lambda status, _: statuses.append(status))
        body.close()
    assert statuses == ["200 OK"] * 3
    assert site["outcome"] == web.WebOutcome(200, 0, False)


async def test_a_response_that_another_middleware_drops_ends_the_lease(site, one_slot_sync):
    site["limiter"] = one_slot_sync
    with wsgi_server(WSGIHandler()) as port:
        site["around"] = drop_response
        assert (await fetch(port, "/stream", KEY)).status == 500
        del site["around"]

        async def is_free():
            return (await fetch(port, "/stream", KEY)).status == 200

        await until(is_free)


def test_a_request_that_has_ended_is_freed_without_the_collector(site, one_slot_sync):
    """Bodies that were uploaded may be large."""
    seen = []
    site["limiter"] = one_slot_sync
    application = WSGIHandler()
    request_class = application.request_class

    class Noted(request_class):
        def __init__(self, environ):
            super().__init__(environ)
            seen.append(weakref.ref(self))

    application.request_class = Noted
    gc.collect()
    gc.disable()
    try:
        with wsgi_server(application) as port:
            assert fetch_sync(port, "/hello", KEY).status == 200
        assert seen[0]() is None
    finally:
        gc.enable()


# --- Django under ASGI


@pytest.mark.parametrize("path", ["/hello?faulty=1", "/async_stream?faulty=1"])
async def test_a_cost_under_asgi_that_cannot_be_found_out_ends_the_lease(site, one_slot, path):
    site["limiter"] = one_slot
    async with asgi_server(ASGIHandler()) as port:
        replies = [await fetch(port, path, KEY) for _ in range(3)]
    assert [each.status for each in replies] == [200] * 3


async def test_a_response_under_asgi_that_another_middleware_drops_ends_the_lease(site, one_slot):
    site["limiter"] = one_slot
    async with asgi_server(ASGIHandler()) as port:
        site["around"] = drop_response_async
        assert (await fetch(port, "/async_stream", KEY)).status == 500
        del site["around"]

        async def is_free():
            return (await fetch(port, "/async_stream", KEY)).status == 200

        await until(is_free)


async def test_a_client_that_hangs_up_before_the_stream_starts_ends_the_lease(site, one_slot):
    reached = asyncio.Event()

    async def wait():
        reached.set()
        await asyncio.Event().wait()

    site |= {"limiter": one_slot, "around": wait}
    async with asgi_server(ASGIHandler()) as port:
        client = asyncio.create_task(fetch(port, "/async_stream", KEY))
        await reached.wait()
        client.cancel()
        await asyncio.wait([client])
        del site["around"]

        async def is_free():
            return (await fetch(port, "/async_stream", KEY)).status == 200

        await until(is_free)


async def test_a_client_that_hangs_up_while_a_thread_waits_for_it_ends_the_lease(
    site, one_slot_sync
):
    """The thread cannot be stopped; what it gets in the end is given back."""
    site |= {"limiter": one_slot_sync, "held": [], "release": asyncio.Event()}
    handler = django_site.handler(ASGIHandler, OPTIONS={"timeout": 30}, COST_AFTER=None)
    async with asgi_server(handler) as port:
        first = asyncio.create_task(fetch(port, "/hold?name=first", KEY))
        await until(lambda: is_held(site, ["first"]))
        gone = asyncio.create_task(fetch(port, "/hold?name=gone", KEY))
        await asyncio.sleep(0.2)  # until it waits; the test holds if it does not yet
        gone.cancel()
        await asyncio.wait([gone])
        site["release"].set()
        assert (await first).status == 200
        assert (await fetch(port, "/hold?name=last", KEY)).status == 200
    assert site["held"] == ["first", "last"]
    assert one_slot_sync.available("key", "api")["parallel"] == 1
    used = LIMITS[0].capacity - one_slot_sync.available("key", "api")["rpm"]
    assert used <= 2, "a request that was not served costs nothing"


async def test_threads_that_wait_for_a_slot_do_not_keep_its_holder_from_ending(site, one_slot_sync):
    """Many requests wait; their threads are neither those of ends nor those of the application."""
    site |= {"limiter": one_slot_sync, "held": [], "release": asyncio.Event()}
    handler = django_site.handler(ASGIHandler, OPTIONS={"timeout": 40}, COST_AFTER=None)
    few = ThreadPoolExecutor(2)
    asyncio.get_running_loop().set_default_executor(few)
    async with asgi_server(handler) as port, asyncio.timeout(20):
        first = asyncio.create_task(fetch(port, "/hold?name=first", KEY))
        await until(lambda: is_held(site, ["first"]))
        waiting = [asyncio.create_task(fetch(port, "/hold?name=next", KEY)) for _ in range(6)]
        await asyncio.sleep(0.5)  # until they wait; the test holds if they do not yet
        assert await asyncio.to_thread(len, "abc") == 3
        site["release"].set()
        assert [(await each).status for each in (first, *waiting)] == [200] * 7


async def is_held(site, names):
    return site["held"] == names


# --- WSGI, ASGI, FastAPI


def test_a_cost_under_wsgi_that_cannot_be_found_out_ends_the_lease(one_slot_sync, caplog):
    def hello(environ, start_response):
        start_response("200 OK", [])
        return [b"hello"]

    def cost_after(request, outcome):
        raise LookupError("a mistake of the application")

    app = web.WsgiMiddleware(hello, one_slot_sync, key="key", cost_after=cost_after)
    with wsgi_server(app) as port:
        assert [fetch_sync(port, "/").status for _ in range(3)] == [200] * 3
    assert "cost_after failed" in caplog.text


@pytest.mark.parametrize("cost", [{"unknown": 1}, {"tpm": -1}, "much"])
async def test_a_cost_under_asgi_that_is_none_ends_the_lease(one_slot, caplog, cost):
    app = web.AsgiMiddleware(
        JSONResponse({}), one_slot, key="key", cost_after=lambda request, outcome: cost
    )
    async with asgi_server(app) as port:
        assert [(await fetch(port, "/")).status for _ in range(3)] == [200] * 3
    assert "cost_after failed" in caplog.text


async def test_a_client_that_hangs_up_on_a_dependency_ends_the_lease(one_slot):
    app = FastAPI()

    @app.get("/", dependencies=[Depends(web.rate_limit(one_slot, key="key"))])
    async def stream():
        async def body():
            while True:
                yield "chunk\n"
                await asyncio.sleep(0.001)

        return StreamingResponse(body())

    @app.get("/next", dependencies=[Depends(web.rate_limit(one_slot, key="key"))])
    async def following():
        return {}

    async with asgi_server(app) as port:
        await hang_up(port, "/", b"chunk")

        async def is_free():
            return (await fetch(port, "/next")).status == 200

        await until(is_free)

"""The ASGI middleware and the FastAPI dependency under a real server."""

import asyncio
import json
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from tests.support.web_servers import asgi_server, fetch, hang_up
from zae_limiter import Lease, Limit, RateLimitExceeded, ValidationError, web
from zae_limiter.testing import outage

KEY = {"x-api-key": "key"}


async def hello(request):
    return JSONResponse({"hello": "world"})


def starlette(*endpoints):
    return Starlette(routes=[Route(f"/{each.__name__}", each) for each in endpoints])


def limited(app, limiter, **options):
    return web.AsgiMiddleware(app, limiter, key=web.header("x-api-key"), **options)


async def test_requests_are_limited_by_their_key(limiter):
    async with asgi_server(limited(starlette(hello), limiter)) as port:
        replies = [await fetch(port, "/hello", KEY) for _ in range(4)]
        assert [each.status for each in replies] == [200, 200, 200, 429]
        rejected = replies[-1].json()
        assert rejected["error"] == "rate_limit_exceeded"
        assert int(replies[-1].headers["retry-after"]) > 80_000
        assert "r=2" in replies[0].headers["ratelimit"]
        assert replies[-1].headers["ratelimit"]
        assert (await fetch(port, "/hello", {"x-api-key": "other"})).status == 200


async def test_functions_say_what_a_request_costs(limiter, charged):
    async def key(request):
        return request.headers["x-api-key"]

    app = web.AsgiMiddleware(
        starlette(hello),
        limiter,
        key=key,
        resource=lambda request: request.path.strip("/"),
        cost=lambda request: {"rpm": 1, "tpm": len(request.path)},
        style="x-ratelimit",
    )
    async with asgi_server(app) as port:
        reply = await fetch(port, "/hello", KEY)
    assert reply.status == 200
    assert "x-ratelimit-remaining" in " ".join(reply.headers)
    assert await charged("hello") == (1, 6)


async def test_a_request_without_a_key_has_no_lease(limiter):
    async def look(request):
        return JSONResponse({"lease": request.state.lease})

    async with asgi_server(limited(starlette(look), limiter, key_optional=True)) as port:
        assert (await fetch(port, "/look")).json() == {"lease": None}
    async with asgi_server(web.AsgiMiddleware(starlette(look))) as port:
        assert (await fetch(port, "/look")).json() == {"lease": None}


async def test_a_middleware_without_a_limiter_leaves_the_lease_of_one_around_it(limiter):
    async def look(request):
        return JSONResponse(request.state.lease.consumed)

    app = limited(web.AsgiMiddleware(starlette(look)), limiter)
    async with asgi_server(app) as port:
        assert (await fetch(port, "/look", KEY)).json() == {"rpm": 1}


@pytest.mark.parametrize(("policy", "status"), [("allow", 200), ("block", 503)])
async def test_an_outage_goes_by_its_policy(limiter, policy, status):
    app = limited(starlette(hello), limiter, on_unavailable=policy)
    async with asgi_server(app) as port:
        with outage(limiter):
            reply = await fetch(port, "/hello", KEY)
    assert reply.status == status
    assert ("retry-after" in reply.headers) == (status == 503)


def test_a_limiter_needs_a_key(limiter):
    with pytest.raises(ValidationError, match="key"):
        web.AsgiMiddleware(hello, limiter)
    with pytest.raises(ValidationError, match="limiter"):
        web.AsgiMiddleware(hello, key="all")


def test_an_unknown_style_is_noticed_at_the_start(limiter):
    with pytest.raises(ValidationError, match="style"):
        limited(hello, limiter, style="iettf")
    with pytest.raises(ValidationError, match="style"):
        fastapi(limiter, style="iettf")


# --- streams


def streaming(limiter, chunks=3, inner="inner"):
    """An endpoint whose generator makes a limited call before its first chunk."""

    async def stream(request):
        async def body():
            async with limiter.acquire("key", inner, {"rpm": 1}):
                for number in range(chunks):
                    yield f"chunk {number}\n"
                    await asyncio.sleep(0)

        return StreamingResponse(body(), media_type="text/plain")

    return starlette(stream)


async def test_a_rejection_in_a_stream_is_no_empty_200(limiter):
    app = streaming(limiter)
    async with asgi_server(web.AsgiMiddleware(app)) as port:
        replies = [await fetch(port, "/stream") for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[0].body == b"chunk 0\nchunk 1\nchunk 2\n"
    assert replies[3].json()["error"] == "rate_limit_exceeded"


async def test_a_rejection_in_a_stream_with_a_handler_is_no_empty_200(limiter):
    """Starlette refuses to handle it, because it believes that the response has started."""
    app = streaming(limiter)
    app.add_exception_handler(RateLimitExceeded, lambda request, error: JSONResponse({}, 429))
    async with asgi_server(web.AsgiMiddleware(app)) as port:
        replies = [await fetch(port, "/stream") for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]


async def test_a_server_that_raises_for_a_client_that_has_gone_is_understood(limiter, charged):
    """As servers of a newer ASGI version do; the generator is not cancelled then."""
    outcomes = []
    app = limited(
        streaming(limiter, chunks=100),
        limiter,
        cost={"rpm": 1, "tpm": 5_000},
        cost_after=lambda request, outcome: outcomes.append(outcome) or {"tpm": outcome.body_bytes},
    )

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        if message.get("body") == b"chunk 3\n":
            raise OSError("the client has gone")

    version = {"version": "3.0", "spec_version": "2.4"}
    scope = {"type": "http", "asgi": version, "method": "GET", "path": "/stream"}
    scope |= {"headers": [(b"x-api-key", b"key")], "query_string": b"", "client": None}
    with pytest.raises(ClientDisconnect):
        await app(scope, receive, send)
    assert outcomes == [web.WebOutcome(200, 24, False)]
    assert await charged() == (1, 24)


async def test_an_outage_in_a_stream_is_a_503(limiter):
    async with asgi_server(web.AsgiMiddleware(streaming(limiter))) as port:
        with outage(limiter):
            assert (await fetch(port, "/stream")).status == 503


async def test_an_error_in_a_stream_before_its_first_bytes_is_a_500(limiter):
    async def stream(request):
        async def body():
            raise LookupError("nothing to send")
            yield ""

        return StreamingResponse(body())

    app = starlette(stream)
    app.add_middleware(web.AsgiMiddleware)
    async with asgi_server(app) as port:
        assert (await fetch(port, "/stream")).status == 500


async def test_what_arrives_after_the_first_bytes_stays_as_it_is(limiter):
    async def stream(request):
        async def body():
            yield "first"
            async with limiter.acquire("key", "inner", {"rpm": 5}):
                yield "second"

        return StreamingResponse(body())

    async with asgi_server(web.AsgiMiddleware(starlette(stream))) as port:
        reply = await asyncio.wait_for(fetch_partly(port), 20)
    assert b"first" in reply
    assert b"200 OK" in reply
    assert not reply.endswith(b"0\r\n\r\n"), "the client can tell that it is not complete"


async def fetch_partly(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\n")
    data = await reader.read()
    writer.close()
    return data


async def test_the_true_cost_is_settled_after_the_response(limiter, charged):
    outcomes = []

    def cost_after(request, outcome):
        outcomes.append(outcome)
        return {"tpm": outcome.body_bytes}

    app = limited(streaming(limiter), limiter, cost={"rpm": 1, "tpm": 500}, cost_after=cost_after)
    async with asgi_server(app) as port:
        assert (await fetch(port, "/stream", KEY)).status == 200
    assert await charged() == (1, 24)
    assert outcomes == [web.WebOutcome(200, 24, True)]


@pytest.mark.parametrize("inner", ["inner", "a b"])
async def test_the_outcome_is_what_the_client_has_got(limiter, inner):
    outcomes = []
    app = limited(
        streaming(limiter, inner=inner),
        limiter,
        limits=[Limit.per_minute("rpm", 10)],
        cost_after=lambda request, outcome: outcomes.append(outcome),
    )
    async with asgi_server(app) as port:
        replies = [await fetch(port, "/stream", KEY) for _ in range(4)]
    if inner == "inner":
        assert replies[3].status == 429
        assert outcomes[3] == web.WebOutcome(429, len(replies[3].body), True)
    else:  # the generator raises, and the server answers
        assert replies[3].status == 500
        assert outcomes[3] == web.WebOutcome(None, 0, False)


async def test_a_rejection_that_the_middleware_answers_is_an_error_for_the_lease(limiter, charged):
    app = limited(streaming(limiter), limiter, on_error="refund")
    async with limiter.acquire("key", "inner", {"rpm": 3}):
        pass
    async with asgi_server(app) as port:
        assert (await fetch(port, "/stream", KEY)).status == 429
    assert await charged() == (0, 0)


async def test_the_headers_know_what_was_settled_before_the_response(limiter):
    async def answer(request):
        await request.state.lease.settle(tpm=4_000)
        return JSONResponse({})

    app = limited(starlette(answer), limiter, cost={"rpm": 1, "tpm": 100})
    async with asgi_server(app) as port:
        assert "r=6000" in (await fetch(port, "/answer", KEY)).headers["ratelimit"]


@pytest.mark.parametrize("makes_its_response", [True, False])
async def test_the_headers_of_a_dependency_inside_of_the_middleware_know_it_too(
    limiter, makes_its_response
):
    app = FastAPI()
    app.add_middleware(web.AsgiMiddleware)
    dependency = web.rate_limit(limiter, key="key", cost={"rpm": 1, "tpm": 100})

    @app.get("/answer")
    async def answer(lease: Annotated[Lease, Depends(dependency)]):
        await lease.settle(tpm=4_000)
        return JSONResponse({}) if makes_its_response else {}

    async with asgi_server(app) as port:
        assert "r=6000" in (await fetch(port, "/answer")).headers["ratelimit"]


async def test_an_async_function_may_say_the_true_cost(limiter, charged):
    async def cost_after(request, outcome):
        await asyncio.sleep(0)
        return {"tpm": outcome.body_bytes}

    app = limited(streaming(limiter), limiter, cost={"rpm": 1, "tpm": 500}, cost_after=cost_after)
    async with asgi_server(app) as port:
        assert (await fetch(port, "/stream", KEY)).status == 200
    assert await charged() == (1, 24)


async def test_the_application_settles_its_lease(limiter, charged):
    async def answer(request):
        await request.state.lease.settle(tpm=812)
        raise LookupError("after the tokens were used")

    async with asgi_server(limited(starlette(answer), limiter)) as port:
        assert (await fetch(port, "/answer", KEY)).status == 500
    assert await charged() == (1, 812)


async def test_a_client_that_hangs_up_pays(limiter, charged):
    outcomes = []

    def cost_after(request, outcome):
        outcomes.append(outcome)
        return {"tpm": outcome.body_bytes}

    app = limited(
        streaming(limiter, chunks=10**9),
        limiter,
        cost={"rpm": 1, "tpm": 5_000},
        cost_after=cost_after,
    )
    async with asgi_server(app) as port:
        await hang_up(port, "/stream", b"chunk 5\n", KEY)
        async with asyncio.timeout(20):
            while not outcomes:  # noqa: ASYNC110 - settled without a word
                await asyncio.sleep(0.01)
    assert not outcomes[0].complete
    requests, tokens = await charged()
    assert requests == 1
    assert tokens == outcomes[0].body_bytes >= 48


# --- FastAPI


def fastapi(limiter, **options):
    app = FastAPI()
    dependency = web.rate_limit(limiter, key=web.header("x-api-key"), **options)

    @app.get("/hello")
    async def hello(lease: Annotated[Lease, Depends(dependency)]):
        return {"consumed": lease.consumed if lease else None}

    @app.get("/stream")
    async def stream(lease: Annotated[Lease, Depends(dependency)], chunks: int = 3):
        async def body():
            for number in range(chunks):
                await lease.settle(tpm=number + 1)
                yield f"chunk {number}\n"
                await asyncio.sleep(0.001)

        return StreamingResponse(body(), headers=lease.headers())

    return app


async def test_a_dependency_limits_its_endpoint(limiter):
    async with asgi_server(fastapi(limiter)) as port:
        replies = [await fetch(port, "/hello", KEY) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[0].json() == {"consumed": {"rpm": 1}}
    assert replies[3].json()["detail"]["error"] == "rate_limit_exceeded"
    assert replies[3].headers["retry-after"]
    assert replies[0].headers["ratelimit"]


async def test_inside_of_the_middleware_the_body_is_the_rejection_itself(limiter):
    app = fastapi(limiter)
    app.add_middleware(web.AsgiMiddleware)
    async with asgi_server(app) as port:
        replies = [await fetch(port, "/hello", KEY) for _ in range(4)]
    assert replies[3].status == 429
    assert replies[3].json()["error"] == "rate_limit_exceeded"


@pytest.mark.parametrize(("policy", "status"), [("allow", 200), ("block", 503)])
async def test_a_dependency_goes_by_the_outage_policy(limiter, policy, status):
    async with asgi_server(fastapi(limiter, on_unavailable=policy)) as port:
        with outage(limiter):
            assert (await fetch(port, "/hello", KEY)).status == status


async def test_a_dependency_without_a_key_has_no_lease(limiter):
    async with asgi_server(fastapi(limiter, key_optional=True)) as port:
        assert (await fetch(port, "/hello")).json() == {"consumed": None}


@pytest.mark.parametrize("path", ["/hello", "/stream"])
async def test_middleware_and_dependency_send_one_set_of_headers(limiter, path):
    limits = [Limit.per_minute("rpm", 7), Limit.per_minute("tpm", 100)]
    await limiter.set_limits("key", limits, "search")
    app = limited(fastapi(limiter, resource="search"), limiter, cost={"rpm": 2})
    async with asgi_server(app) as port:
        reply = await fetch(port, path, KEY)
    assert reply.status == 200
    sent = [value for name, value in reply.header_list if name == "ratelimit"]
    assert len(sent) == 1, "of the dependency, which is closer to the endpoint"
    assert "r=6" in sent[0]


async def test_the_lease_of_a_dependency_lasts_until_the_stream_has_ended(limiter, charged):
    async with asgi_server(fastapi(limiter, cost={"rpm": 1, "tpm": 500})) as port:
        reply = await fetch(port, "/stream", KEY)
    assert reply.body.count(b"chunk") == 3
    assert reply.headers["ratelimit"]
    assert await charged() == (1, 3)


async def test_a_client_that_hangs_up_pays_what_was_settled(limiter, charged):
    async with asgi_server(fastapi(limiter, cost={"rpm": 1, "tpm": 500})) as port:
        await hang_up(port, "/stream?chunks=100000", b"chunk 9\n", KEY)
        async with asyncio.timeout(20):
            while (await charged())[1] == 500:  # noqa: ASYNC110 - settled without a word
                await asyncio.sleep(0.01)
    requests, tokens = await charged()
    assert requests == 1
    assert 10 <= tokens < 500


async def test_an_endpoint_that_fails_keeps_its_charge(limiter, charged):
    app = FastAPI()

    @app.post("/fail", dependencies=[Depends(web.rate_limit(limiter, key="key"))])
    async def fail(request: Request):
        raise LookupError(await request.json())

    async with asgi_server(app) as port:
        assert (await fetch(port, "/fail", body=json.dumps(1).encode())).status == 500
    assert await charged() == (1, 0)

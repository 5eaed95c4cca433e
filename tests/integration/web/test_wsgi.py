"""The WSGI middleware and Flask under a real server."""

import time
from http.client import HTTPConnection

import pytest
from flask import Flask, Response, request, stream_with_context

from tests.docs.pages import DOCS, blocks
from tests.support.web_servers import fetch_sync, hang_up_sync, wsgi_server
from zae_limiter import Limit, ValidationError, web
from zae_limiter.testing import outage

KEY = {"x-api-key": "key"}


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello ", b"world"]


def limited(app, limiter, **options):
    return web.WsgiMiddleware(app, limiter, key=web.header("x-api-key"), **options)


def test_requests_are_limited_by_their_key(sync_limiter):
    with wsgi_server(limited(hello, sync_limiter)) as port:
        replies = [fetch_sync(port, "/", KEY) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[0].body == b"hello world"
    assert "r=2" in replies[0].headers["ratelimit"]
    assert replies[3].json()["error"] == "rate_limit_exceeded"
    assert int(replies[3].headers["retry-after"]) > 80_000


@pytest.mark.parametrize("name", ["key", "resource", "cost", "cost_after"])
def test_async_functions_are_refused_at_the_start(sync_limiter, name):
    async def function(*arguments):
        return None

    with pytest.raises(ValidationError, match=f"{name}.* must not be async"):
        web.WsgiMiddleware(hello, sync_limiter, **{"key": "key", name: function})


def test_a_request_without_a_key_has_no_lease(sync_limiter):
    def look(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [repr(environ["zae_limiter.lease"]).encode()]

    with wsgi_server(limited(look, sync_limiter, key_optional=True)) as port:
        assert fetch_sync(port, "/").body == b"None"
    with wsgi_server(web.WsgiMiddleware(look)) as port:
        assert fetch_sync(port, "/").body == b"None"


def test_headers_that_the_application_sets_stand(sync_limiter):
    def own(environ, start_response):
        headers = environ["zae_limiter.lease"].headers()
        start_response("200 OK", list(headers.items()))
        return [b"own"]

    with wsgi_server(limited(own, sync_limiter)) as port:
        reply = fetch_sync(port, "/", KEY)
    assert len([name for name, _ in reply.header_list if name == "ratelimit"]) == 1


@pytest.mark.parametrize(("policy", "status"), [("allow", 200), ("block", 503)])
def test_an_outage_goes_by_its_policy(sync_limiter, policy, status):
    app = limited(hello, sync_limiter, on_unavailable=policy)
    with wsgi_server(app) as port, outage(sync_limiter):
        assert fetch_sync(port, "/", KEY).status == status


def test_a_limiter_needs_a_key(sync_limiter):
    with pytest.raises(ValidationError, match="key"):
        web.WsgiMiddleware(hello, sync_limiter)


def test_the_old_way_to_write_a_body_works(sync_limiter):
    def old(environ, start_response):
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(b"old")
        return [b" way"]

    with wsgi_server(limited(old, sync_limiter)) as port:
        reply = fetch_sync(port, "/", KEY)
    assert (reply.status, reply.body) == (200, b"old way")


def test_a_body_without_bytes_works(sync_limiter):
    def empty(environ, start_response):
        start_response("204 No Content", [])
        return []

    with wsgi_server(limited(empty, sync_limiter)) as port:
        assert fetch_sync(port, "/", KEY).status == 204


def flask(inner_limiter, **options):
    app = Flask("test")
    app.config["PROPAGATE_EXCEPTIONS"] = False

    @app.get("/view")
    def view():
        with inner_limiter.acquire("key", "inner", {"rpm": 1}):
            return {"hello": "world"}

    @app.get("/stream")
    def stream():
        chunks = int(request.args.get("chunks", 3))

        def body():
            with inner_limiter.acquire("key", "inner", {"rpm": 1}):
                for number in range(chunks):
                    yield f"chunk {number}\n"

        return Response(body(), mimetype="text/plain")

    @app.get("/settle")
    def settle():
        lease = request.environ["zae_limiter.lease"]

        def body():
            lease.settle(tpm=812)
            yield "used"

        return Response(stream_with_context(body()))

    web.init_flask(app, **options)
    return app


@pytest.mark.parametrize("path", ["/view", "/stream"])
def test_a_rejection_in_flask_is_a_429_also_in_a_stream(sync_limiter, path):
    with wsgi_server(flask(sync_limiter)) as port:
        replies = [fetch_sync(port, path) for _ in range(4)]
        with outage(sync_limiter):
            assert fetch_sync(port, path).status == 503
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[3].json()["error"] == "rate_limit_exceeded"
    assert replies[3].headers["retry-after"]


def test_the_lease_of_flask_lasts_until_the_stream_has_ended(sync_limiter, charged_sync):
    app = flask(sync_limiter, limiter=sync_limiter, key="key", cost={"rpm": 1, "tpm": 50})
    with wsgi_server(app) as port:
        assert fetch_sync(port, "/settle").body == b"used"
    assert charged_sync() == (1, 812)


@pytest.mark.parametrize("fails", [False, True])
def test_the_outcome_is_what_the_client_has_got(sync_limiter, fails):
    outcomes = []

    def stream(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        if fails:
            raise LookupError("nothing to send")
        with sync_limiter.acquire("key", "inner", {"rpm": 5}):
            yield b"never"

    app = limited(stream, sync_limiter, cost_after=lambda _, outcome: outcomes.append(outcome))
    with wsgi_server(app) as port:
        reply = fetch_sync(port, "/", KEY)
    if fails:  # the server answers
        assert reply.status == 500
        assert outcomes == [web.WebOutcome(None, 0, False)]
    else:
        assert reply.status == 429
        assert outcomes == [web.WebOutcome(429, len(reply.body), True)]


def test_the_cors_headers_of_the_guide_are_in_every_answer(sync_limiter, monkeypatch):
    monkeypatch.setenv("ZAEL_KEY_SECRET", "secret of this test")
    sync_limiter.set_resource_defaults("flask", [Limit.per_hour("rph", 3)])
    guide = blocks(DOCS / "guide/web-flask.md", "py")
    (source,) = [block for block in guide if "def with_cors" in block]
    app = Flask("test")
    app.get("/")(lambda: {"hello": "world"})
    exec(
        source,
        {"app": app, "limiter": sync_limiter, "api_key": web.header("x-api-key"), "web": web},
    )
    with wsgi_server(app) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("OPTIONS", "/")
        preflight = connection.getresponse()
        replies = [fetch_sync(port, "/", KEY) for _ in range(4)]
        connection.close()
    assert preflight.status == 200
    assert preflight.headers["access-control-allow-headers"] == "x-api-key"
    assert [each.status for each in replies] == [200, 200, 200, 429]
    origins = {each.headers["access-control-allow-origin"] for each in replies}
    assert origins == {"https://shop.example"}


def test_a_client_of_flask_that_hangs_up_pays(sync_limiter, charged_sync):
    outcomes = []

    def cost_after(request, outcome):
        outcomes.append(outcome)
        return {"tpm": outcome.body_bytes}

    app = flask(
        sync_limiter,
        limiter=sync_limiter,
        key="key",
        cost={"rpm": 1, "tpm": 5_000},
        cost_after=cost_after,
    )
    with wsgi_server(app) as port:
        hang_up_sync(port, "/stream?chunks=1000000000", b"chunk 5\n")
        deadline = time.monotonic() + 20
        while not outcomes and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not outcomes[0].complete
    assert charged_sync() == (1, outcomes[0].body_bytes)

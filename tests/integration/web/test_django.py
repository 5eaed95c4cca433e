"""The Django middleware under WSGI and ASGI servers."""

import asyncio

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.integration.web import django_site
from tests.integration.web.conftest import LIMITS
from tests.support.web_servers import asgi_server, fetch, fetch_sync, hang_up, wsgi_server
from zae_limiter import Limit, RateLimiter, Repository, ValidationError, web
from zae_limiter.testing import outage
from zae_limiter.web import WebOutcome

KEY = {"x-api-key": "key"}


@pytest.fixture(autouse=True)
def site():
    django_site.configure()
    django_site.current.clear()
    return django_site.current


def test_a_request_without_a_key_has_no_lease(site, sync_limiter):
    site["limiter"] = sync_limiter
    with wsgi_server(django_site.handler(WSGIHandler, KEY_OPTIONAL=True)) as port:
        assert fetch_sync(port, "/hello").json() == {"lease": None}
    with wsgi_server(django_site.handler(WSGIHandler, LIMITER=None, KEY=None)) as port:
        assert fetch_sync(port, "/hello").json() == {"lease": None}


# --- WSGI


@pytest.fixture
def wsgi(site, sync_limiter):
    site["limiter"] = sync_limiter
    with wsgi_server(WSGIHandler()) as port:
        yield port


def test_requests_are_limited_by_their_key(wsgi):
    replies = [fetch_sync(wsgi, "/hello", KEY) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[0].headers["ratelimit"]
    assert replies[3].json()["error"] == "rate_limit_exceeded"
    assert replies[3].headers["retry-after"]


@pytest.mark.parametrize("path", ["/inner", "/stream"])
def test_a_rejection_in_a_view_is_a_429_also_in_a_stream(site, sync_limiter, path):
    site["limiter"] = sync_limiter
    with wsgi_server(django_site.handler(WSGIHandler, KEY_OPTIONAL=True)) as port:
        replies = [fetch_sync(port, path) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[3].json()["error"] == "rate_limit_exceeded"


def test_an_outage_blocks_or_not(wsgi, sync_limiter):
    with outage(sync_limiter):
        assert fetch_sync(wsgi, "/hello", KEY).status == 503


def test_the_true_cost_of_a_stream_is_settled_at_its_end(wsgi, site, charged_sync):
    reply = fetch_sync(wsgi, "/stream?measured=1", KEY)
    assert reply.body.count(b"chunk") == 3
    assert charged_sync() == (1, 24)
    assert site["outcome"].complete


@pytest.mark.parametrize("path", ["/inner", "/stream"])
def test_the_outcome_is_what_the_client_has_got(wsgi, site, sync_limiter, path):
    with sync_limiter.acquire("key", "inner", {"rpm": 3}):
        pass
    reply = fetch_sync(wsgi, path, KEY)
    assert reply.status == 429
    assert site["outcome"] == WebOutcome(429, len(reply.body), True)


def test_an_async_limiter_does_not_work_under_wsgi(site, limiter):
    site["limiter"] = limiter
    with pytest.raises(ImproperlyConfigured, match="SyncRateLimiter"):
        WSGIHandler()


@pytest.mark.parametrize("name", ["KEY", "RESOURCE", "COST", "COST_AFTER"])
def test_async_functions_do_not_work_under_wsgi(site, sync_limiter, name):
    async def function(*arguments):
        return None

    site["limiter"] = sync_limiter
    with pytest.raises(ValidationError, match=f"{name.lower()}.* must not be async"):
        django_site.handler(WSGIHandler, **{name: function})


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")
def test_an_async_stream_is_served_under_wsgi(wsgi, site, sync_limiter, charged_sync):
    """Django reads it whole before it sends the first bytes."""
    reply = fetch_sync(wsgi, "/async_body?measured=1", KEY)
    assert (reply.status, reply.body.count(b"chunk")) == (200, 3)
    assert reply.headers["ratelimit"]
    assert charged_sync() == (1, 24)
    assert site["outcome"] == WebOutcome(200, 24, True)


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")
def test_an_async_stream_under_wsgi_ends_its_lease(site, sync_limiter):
    sync_limiter.set_limits("key", [*LIMITS, Limit.concurrent("parallel", 1, lease_ttl=3_600)])
    site["limiter"] = sync_limiter
    with wsgi_server(WSGIHandler()) as port:
        assert fetch_sync(port, "/async_body", KEY).status == 200
        fetch_sync(port, "/broken_body", KEY)
        assert not site["outcome"].complete
        assert fetch_sync(port, "/async_body", KEY).status == 200


# --- ASGI


async def test_functions_may_be_async_under_asgi(site, limiter):
    async def key(request):
        return request.headers["x-api-key"]

    async def resource(request):
        return request.path.strip("/")

    async def cost(request):
        return {"rpm": 3}

    site["limiter"] = limiter
    handler = django_site.handler(ASGIHandler, KEY=key, RESOURCE=resource, COST=cost)
    async with asgi_server(handler) as port:
        assert [(await fetch(port, "/hello", KEY)).status for _ in range(2)] == [200, 429]
    assert (await limiter.available("key", "hello"))["rpm"] == 0


@pytest.fixture
async def asgi(site, limiter):
    site["limiter"] = limiter
    async with asgi_server(ASGIHandler()) as port:
        yield port


@pytest.mark.parametrize("path", ["/async_inner", "/async_stream"])
async def test_a_rejection_under_asgi_is_a_429_also_in_a_stream(site, limiter, path):
    site["limiter"] = limiter
    async with asgi_server(django_site.handler(ASGIHandler, KEY_OPTIONAL=True)) as port:
        replies = [await fetch(port, path) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert replies[3].json()["error"] == "rate_limit_exceeded"


async def test_requests_under_asgi_are_limited_by_their_key(asgi, limiter, charged):
    replies = [await fetch(asgi, "/hello", KEY) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert await charged() == (3, 150)
    with outage(limiter):
        assert (await fetch(asgi, "/hello", {"x-api-key": "other"})).status == 503


@pytest.mark.parametrize("path", ["/async_inner", "/async_stream"])
async def test_the_outcome_under_asgi_is_what_the_client_has_got(asgi, site, limiter, path):
    async with limiter.acquire("key", "inner", {"rpm": 3}):
        pass
    reply = await fetch(asgi, path, KEY)
    assert reply.status == 429
    assert site["outcome"] == WebOutcome(429, len(reply.body), True)


async def test_a_client_under_asgi_that_hangs_up_pays(asgi, site, charged):
    await hang_up(asgi, "/async_stream?chunks=1000000&measured=1", b"chunk 5\n", KEY)
    async with asyncio.timeout(20):
        while "outcome" not in site:  # noqa: ASYNC110 - settled without a word
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert not site["outcome"].complete
    assert await charged() == (1, site["outcome"].body_bytes)


async def test_a_sync_limiter_works_under_asgi_in_threads(site, sync_limiter, charged_sync):
    site["limiter"] = sync_limiter
    async with asgi_server(ASGIHandler()) as port:
        replies = [await fetch(port, "/hello", KEY) for _ in range(4)]
        stream = await fetch(port, "/stream?measured=1", {"x-api-key": "other"})
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert charged_sync() == (3, 150)
    assert stream.body.count(b"chunk") == 3


async def test_a_lifespan_around_django_closes_the_limiter(site, tmp_path):
    """As the guide says: Django has none of its own, and uvicorn ends without atexit."""
    url = f"sqlite:///{tmp_path}/limits.db"
    limiter = site["limiter"] = RateLimiter(url=url)

    async def set_up(limiter):
        await limiter.set_system_defaults([Limit.per_hour("rpm", 1), Limit.per_hour("tpm", 1_000)])

    app = Starlette(routes=[Mount("/", ASGIHandler())], lifespan=web.lifespan(limiter, set_up))
    async with asgi_server(app) as port:
        assert [(await fetch(port, "/hello", KEY)).status for _ in range(3)] == [200, 429, 429]
    async with Repository.open(url=url) as repository:
        usage = await repository.get_usage_summary(window_type="hourly")
    assert usage.rejected == 2

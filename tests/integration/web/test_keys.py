"""Whom a request is charged to, and what is answered without a usable key, under real servers."""

import json
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest

from tests.integration.web import apps
from tests.support.web_servers import asgi_server, fetch, gunicorn_server, wait_until
from zae_limiter import ValidationError, web
from zae_limiter.testing import outage

IN_PROCESS = ["asgi", "fastapi", "django_asgi"]
BY_GUNICORN = ["wsgi", "django"]
ALL = [*IN_PROCESS, *BY_GUNICORN]
# Servers and frameworks that join repeated headers with a comma.
JOINING = ["django_asgi", "wsgi", "django"]


@pytest.fixture
def url(tmp_path):
    """A store that the processes of gunicorn see, too."""
    return f"sqlite:///{tmp_path}/limits.db"


@pytest.fixture
def serve(limiter, url):
    """Serve the application of a framework with a real server."""

    @asynccontextmanager
    async def start(kind, unix_path=None, **options):
        options = {"key": "header", **options}
        if kind in BY_GUNICORN:
            environment = {"ZAEL_URL": url, "WEB_OPTIONS": json.dumps(options)}
            app = f"tests.integration.web.apps:{kind}()"
            with gunicorn_server(app, unix_path, **environment) as port:
                yield port
        else:
            async with asgi_server(getattr(apps, kind)(limiter, options), unix_path) as port:
                yield port

    return start


async def entities(limiter):
    listed, _ = await limiter.repository.list_entities()
    return {each.id for each in listed}


def body_of(reply):
    """Return the JSON of a refusal; FastAPI's own errors have it as their detail."""
    body = reply.json()
    return body.get("detail", body)


# --- repeated headers


@pytest.mark.parametrize("kind", ALL)
async def test_a_second_header_does_not_change_who_is_charged(serve, limiter, kind):
    async with serve(kind) as port:
        repeated = [
            await fetch(port, "/", [("x-api-key", "key"), ("X-Api-Key", f"random-{number}")])
            for number in range(5)
        ]
        single = [await fetch(port, "/", {"x-api-key": "key"}) for _ in range(4)]
    assert [each.status for each in repeated] == [400] * 5
    assert body_of(repeated[0])["error"] == "key_ambiguous"
    assert [each.status for each in single] == [200, 200, 200, 429]
    assert await entities(limiter) == {"key"}


@pytest.mark.parametrize("kind", ["asgi", "fastapi"])
async def test_a_header_that_comes_twice_with_one_value_is_one_key(serve, kind):
    same = [("x-api-key", "key"), ("x-api-key", "key")]
    async with serve(kind) as port:
        assert [(await fetch(port, "/", same)).status for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize("kind", JOINING)
async def test_keys_may_have_commas_if_that_is_said(serve, limiter, kind):
    async with serve(kind, key="comma") as port:
        assert (await fetch(port, "/", {"x-api-key": "a,b"})).status == 200
    assert await entities(limiter) == {"a,b"}


@pytest.mark.parametrize("kind", ["asgi", "fastapi"])
async def test_a_comma_is_part_of_a_key_where_servers_keep_headers_apart(serve, limiter, kind):
    async with serve(kind) as port:
        assert (await fetch(port, "/", {"x-api-key": "a,b"})).status == 200
    assert await entities(limiter) == {"a,b"}


async def test_functions_see_the_first_of_repeated_headers(limiter):
    seen = []
    app = web.AsgiMiddleware(
        apps.FastAPI(), limiter, key=lambda request: seen.append(request.headers["x-a"]) or "key"
    )
    async with asgi_server(app) as port:
        await fetch(port, "/", [("x-a", "first"), ("X-A", "second")])
    assert seen == ["first"]


@pytest.mark.parametrize("kind", ["asgi", "django_asgi", "wsgi"])
async def test_the_scheme_of_an_authorization_makes_no_other_key(serve, limiter, kind):
    async with serve(kind, key="authorization") as port:
        values = ["Bearer token", "bearer token", "BEARER   token", "Bearer token"]
        replies = [await fetch(port, "/", {"Authorization": value}) for value in values]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert await entities(limiter) == {"token"}


@pytest.mark.parametrize("value", ["Bearer", "bearer ", "Basic", "Token"])
async def test_a_scheme_without_credentials_is_no_key(serve, limiter, value):
    async with serve("asgi", key="authorization") as port:
        assert (await fetch(port, "/", {"Authorization": value})).status == 401
    assert await entities(limiter) == set()


BASIC = "Ym9iOnB3"  # bob:pw
UNUSABLE = [
    "Token SEC RET",
    "Token SECRET\ttwice",
    "Token\udca0SECRET",  # the bytes A0 and 85 are spaces in Latin-1
    "Token \udca0SECRET",
    "Token SECRET\udca0",
    "Token SECRET\udc85\udca0",
    "Token SECRET\N{NO-BREAK SPACE}",
    "Token SECRET\N{EM SPACE}",
    "Token\N{IDEOGRAPHIC SPACE}SECRET",
    "Basic Ym9i!!OnB3",
    "basic\tYm9i!OnB3",
    "Basic\udca0 Ym9i!!OnB3",
    "Basic Ym9i-OnB3",
    "Basic ключ",
]


@pytest.mark.parametrize("kind", ["asgi", "fastapi", "django_asgi", "wsgi"])
async def test_space_around_credentials_makes_no_other_key(serve, limiter, kind):
    async with serve(kind, key="hashed_authorization") as port:
        values = [f"Token{space}SECRET" for space in ("\t", "\t\t", " \t ", "\t \t", " ")]
        values += ["Token SECRET\t", "Token\tSECRET \t"]
        replies = [await fetch(port, "/", {"Authorization": value}) for value in values]
    assert [each.status for each in replies] == [200] * 3 + [429] * 4
    assert await entities(limiter) == {web.hashed_key("SECRET", apps.SECRET)}


@pytest.mark.parametrize("kind", ["asgi", "fastapi", "django_asgi", "wsgi"])
async def test_credentials_that_can_be_read_in_two_ways_are_refused(serve, limiter, kind):
    async with serve(kind, key="hashed_authorization") as port:
        replies = [await fetch(port, "/", {"Authorization": value}) for value in UNUSABLE]
    assert [each.status for each in replies] == [400] * len(UNUSABLE)
    assert {body_of(each)["error"] for each in replies} == {"key_invalid"}
    assert await entities(limiter) == set()


@pytest.mark.parametrize("value", [f"Basic {BASIC}", f"basic\t{BASIC}", f"BASIC  {BASIC}"])
async def test_basic_credentials_are_one_key(serve, limiter, value):
    async with serve("asgi", key="authorization") as port:
        assert (await fetch(port, "/", {"Authorization": value})).status == 200
    assert await entities(limiter) == {BASIC}


async def test_unused_bits_of_basic_credentials_make_no_other_key(serve, limiter):
    async with serve("asgi", key="authorization") as port:
        for last in "ABCD":  # they differ in bits that padding cuts off: all are bob:p
            value = f"Basic Ym9iOn{last}="
            assert (await fetch(port, "/", {"Authorization": value})).status in (200, 429)
    assert await entities(limiter) == {"Ym9iOnA="}


async def test_credentials_keep_bytes_that_are_a_space_in_latin_1(serve, limiter):
    """The UTF-8 of "à" ends in the byte A0."""
    async with serve("asgi", key="hashed_authorization") as port:
        assert (await fetch(port, "/", {"Authorization": "Bearer keyà"})).status == 200
    assert await entities(limiter) == {web.hashed_key("keyà", apps.SECRET)}


# --- addresses


@pytest.mark.parametrize("kind", IN_PROCESS)
async def test_a_network_of_ipv6_is_one_client(serve, limiter, kind):
    """uvicorn trusts the header of a proxy on the same machine."""
    addresses = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::2", "2001:DB8:1:2:3:4:5:6"]
    addresses += ["2001:db8:1:3::1", "::ffff:192.0.2.1", "192.0.2.1", "fe80::1%eth0", "unknown"]
    async with serve(kind, key="address") as port:
        replies = [await fetch(port, "/", {"X-Forwarded-For": each}) for each in addresses]
    assert [each.status for each in replies] == [200] * len(addresses)
    expected = {"2001:db8:1:2::/64", "2001:db8:1:3::/64", "192.0.2.1", "fe80::/64", "unknown"}
    assert await entities(limiter) == expected


# --- missing keys


@pytest.mark.parametrize("kind", ALL)
async def test_a_request_without_a_key_is_refused(serve, limiter, kind):
    async with serve(kind) as port:
        missing = await fetch(port, "/")
        empty = await fetch(port, "/", {"x-api-key": ""})
    assert (missing.status, empty.status) == (401, 401)
    assert body_of(missing)["error"] == "key_required"
    assert missing.headers["www-authenticate"]
    assert await entities(limiter) == set()


@pytest.mark.parametrize("kind", ALL)
async def test_a_request_without_a_key_passes_if_keys_are_optional(serve, limiter, kind):
    async with serve(kind, key_optional=True) as port:
        replies = [await fetch(port, "/") for _ in range(5)]
    assert [each.status for each in replies] == [200] * 5
    assert "ratelimit" not in replies[0].headers
    assert await entities(limiter) == set()


@pytest.mark.parametrize("kind", ALL)
async def test_over_a_unix_socket_a_client_has_no_address(serve, tmp_path, kind):
    async with serve(kind, tmp_path / "socket", key="address") as path:
        assert (await fetch(path, "/")).status == 401


@pytest.mark.parametrize("kind", ALL)
async def test_a_key_that_is_no_id_is_a_bad_request(serve, kind):
    async with serve(kind) as port:
        reply = await fetch(port, "/", {"x-api-key": "a#b"})
    assert reply.status == 400
    assert body_of(reply)["error"] == "key_invalid"
    assert "'#'" in body_of(reply)["message"]


# --- secrets


@pytest.mark.parametrize("kind", ALL)
async def test_a_hashed_key_is_no_secret_of_a_client(serve, limiter, kind):
    async with serve(kind, key="hashed") as port:
        replies = [await fetch(port, "/", {"x-api-key": "sk-secret"}) for _ in range(4)]
    assert [each.status for each in replies] == [200, 200, 200, 429]
    assert await entities(limiter) == {web.hashed_key("sk-secret", apps.SECRET)}


async def test_a_hashed_key_is_of_the_bytes_that_were_sent(serve, limiter):
    async with serve("asgi", key="hashed") as port:
        await fetch(port, "/", {"x-api-key": "ключ"})
    assert await entities(limiter) == {web.hashed_key("ключ", apps.SECRET)}


def test_a_digest_depends_on_key_and_secret_alone(monkeypatch):
    digest = web.hashed_key("sk-1", "secret")
    assert digest.startswith("key-")
    assert "sk-1" not in digest
    monkeypatch.setenv("ZAEL_KEY_SECRET", "secret")
    assert web.hashed_key("sk-1") == web.hashed_key("sk-1", b"secret") == digest
    assert len({digest, web.hashed_key("sk-2"), web.hashed_key("sk-1", "other")}) == 3


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_secret_nothing_starts(monkeypatch, value):
    monkeypatch.delenv("ZAEL_KEY_SECRET", raising=False)
    if value is not None:
        monkeypatch.setenv("ZAEL_KEY_SECRET", value)
    with pytest.raises(ValidationError, match="ZAEL_KEY_SECRET"):
        web.hashed_header("x-api-key")
    with pytest.raises(ValidationError, match="ZAEL_KEY_SECRET"):
        web.hashed_key("sk-1")


# --- known entities only


@pytest.mark.parametrize("kind", ALL)
async def test_unknown_keys_are_refused_and_store_nothing(serve, limiter, kind):
    await limiter.create_entity("known")
    async with serve(kind, known_only=True) as port:
        unknown = [await fetch(port, "/", {"x-api-key": f"made-up-{n}"}) for n in range(3)]
        known = [await fetch(port, "/", {"x-api-key": "known"}) for _ in range(4)]
    assert [each.status for each in unknown] == [401] * 3
    assert body_of(unknown[0])["error"] == "key_unknown"
    assert [each.status for each in known] == [200, 200, 200, 429]
    assert await entities(limiter) == {"known"}


async def test_a_key_is_known_as_soon_as_it_is_registered(serve, limiter):
    async with serve("asgi", known_only=True) as port:
        assert (await fetch(port, "/", {"x-api-key": "key"})).status == 401
        await limiter.create_entity("key")
        assert (await fetch(port, "/", {"x-api-key": "key"})).status == 200


@pytest.mark.parametrize(("policy", "status"), [("allow", 200), ("block", 503)])
async def test_in_an_outage_the_policy_decides_about_unknown_keys(serve, limiter, policy, status):
    async with serve("asgi", known_only=True, on_unavailable=policy) as port:
        with outage(limiter):
            assert (await fetch(port, "/", {"x-api-key": "key"})).status == status


async def test_an_entity_that_cannot_be_read_lets_no_other_key_pass(serve, limiter, tmp_path):
    await limiter.create_entity("damaged")
    with closing(sqlite3.connect(tmp_path / "limits.db")) as file:
        file.execute("UPDATE entity SET metadata = '{not JSON'")
        file.commit()
    async with serve("asgi", known_only=True) as port:
        damaged = await fetch(port, "/", {"x-api-key": "damaged"})
        made_up = [await fetch(port, "/", {"x-api-key": f"made-up-{n}"}) for n in range(5)]
    assert damaged.status == 503, "the outage policy decides about it"
    assert [each.status for each in made_up] == [401] * 5


async def test_keys_do_not_wait_for_a_store_that_is_down(serve, limiter):
    """The breaker opens; from then on no key is looked up."""
    async with serve("asgi", known_only=True, on_unavailable="allow") as port:
        with outage(limiter):

            async def is_open():
                await fetch(port, "/", {"x-api-key": "key"})
                return limiter.repository.get_stats().breaker_open

            await wait_until(is_open)
            made_up = [await fetch(port, "/", {"x-api-key": f"made-up-{n}"}) for n in range(5)]
        assert [each.status for each in made_up] == [200] * 5
        assert (await fetch(port, "/", {"x-api-key": "made-up-9"})).status == 401


# --- what a rejection tells


@pytest.mark.parametrize("kind", ALL)
async def test_a_rejection_names_neither_tenant_nor_capacity(serve, limiter, kind):
    await limiter.create_entity("acme")
    await limiter.create_entity("key", parent_id="acme", cascade=True)
    async with serve(kind) as port:
        replies = [await fetch(port, "/", {"x-api-key": "key"}) for _ in range(4)]
    body = body_of(replies[3])
    assert set(body) == {"error", "message", "retry_after_seconds"}
    assert body["error"] == "rate_limit_exceeded"
    assert body["retry_after_seconds"] > 80_000
    told = replies[3].body.decode()
    assert not [name for name in ("acme", "rpm", "limits", "capacity") if name in told]
    assert int(replies[3].headers["retry-after"]) > 80_000


@pytest.mark.parametrize("kind", ALL)
async def test_details_and_headers_are_a_choice(serve, limiter, kind):
    async with serve(kind, details=True, style=None) as port:
        replies = [await fetch(port, "/", {"x-api-key": "key"}) for _ in range(4)]
    assert body_of(replies[3])["limits"][0]["entity_id"] == "key"
    assert not [name for each in replies for name in each.headers if "ratelimit" in name]
    assert replies[3].headers["retry-after"]


# --- requests that are skipped


@pytest.mark.parametrize("kind", ALL)
async def test_a_request_that_is_skipped_is_not_limited_and_needs_no_key(serve, limiter, kind):
    probe = {"user-agent": "probe"}
    async with serve(kind, skip="probes", known_only=True) as port:
        probes = [await fetch(port, "/", probe) for _ in range(4)]
        assert (await fetch(port, "/")).status == 401
        if kind not in BY_GUNICORN:
            with outage(limiter):
                probes.append(await fetch(port, "/", probe))
    assert {each.status for each in probes} == {200}
    assert "ratelimit" not in probes[0].headers
    assert await entities(limiter) == set()


async def test_an_async_function_may_say_which_requests_are_skipped(limiter):
    async def skip(request):
        return request.headers.get("user-agent") == "probe"

    async def hello(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    app = web.AsgiMiddleware(hello, limiter, key=web.header("x-api-key"), skip=skip)
    async with asgi_server(app) as port:
        assert (await fetch(port, "/", {"user-agent": "probe"})).status == 200
        assert (await fetch(port, "/", {"user-agent": "other"})).status == 401

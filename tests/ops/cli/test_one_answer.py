"""Whoever is asked who is refused by what gives the same answer.

A program, the commands, the service and the operator's page look at one scene: a key calls a model
and pays from a budget of its parent on another resource.
"""

import html
import re
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from tests.dashboard.conftest import Client as Browser
from tests.dashboard.test_pages import eventually
from tests.ops.cli.stores import on_both_engines
from tests.service.running import ThreadedService, service_settings
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

KEY, TEAM, MODEL, ALL = "initech/web", "initech", "gpt-4", "all-models"
GRANTED, REFUSED = 2, 3


def call(limiter):
    with limiter.acquire(KEY, MODEL, {"rpm": 1}, also={ALL: {"usd": "2.50"}}):
        pass


def lower(limiter):
    """Lower the budget to what the calls have spent."""
    limiter.repository.set_limits(TEAM, [Limit.budget("usd", "5.00", per="month")], ALL)


def deny(limiter):
    limiter.repository.set_mode(ALL, entity_id=TEAM, mode="deny")


def pause(limiter):
    limiter.repository.pause(KEY, MODEL, 600)


CAUSES = {
    "budget": (lower, (TEAM, ALL, "usd")),
    "denied": (deny, (TEAM, ALL, "mode deny")),
    "paused": (pause, (KEY, MODEL, "a pause")),
}


@pytest.fixture(params=sorted(CAUSES))
def refused(request, shell):
    """Fill a store with calls of which the last ones are refused; return by what."""
    use, expected = CAUSES[request.param]
    with SyncRepository.open(url=shell.url) as repository:
        repository.set_resource_defaults(MODEL, [Limit.per_day("rpm", 1000)])
        repository.set_resource_defaults(ALL, [Limit.per_day("tpm", 1000)])
        repository.set_limits(TEAM, [Limit.budget("usd", "50.00", per="month")], ALL)
        repository.create_entity(TEAM)
        repository.create_entity(KEY, parent_id=TEAM, cascade=True)
        limiter = SyncRateLimiter(repository)
        for _ in range(GRANTED):
            call(limiter)
        use(limiter)
        for _ in range(REFUSED):
            with pytest.raises(RateLimitExceeded) as caught:
                call(limiter)
            assert caught.value.limited_by == expected
            assert caught.value.as_dict()["limited_by"] == list(expected)
    return expected


@contextmanager
def page_of(url):
    """Serve the operator's page; yield a browser that is signed in."""
    server = DashboardServer(
        lambda: SyncRepository.open("default", url=url, config_cache_ttl=0),
        DashboardSettings(port=0),
        GivenOptions(),
        "default",
    )
    thread = server.start()
    try:
        browser = Browser(server.url)
        browser.sign_in()
        yield browser
    finally:
        server.stop()
        thread.join(20)


@contextmanager
def service_of(url):
    service = ThreadedService(service_settings(url=url))
    try:
        yield service.client()
    finally:
        service.stop()


def text_of(page):
    """Return the words of a page, without tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.each_value_once
@on_both_engines
def test_the_commands_say_what_refused(shell, refused):
    by = "{2} of {0} on {1}".format(*refused)
    assert f" by {by} " in shell("explain", KEY, MODEL).out
    explained = shell("explain", KEY, MODEL, "--output", "json").json
    assert explained["last_limited_by"] == list(refused)
    listed = shell("bucket", "list", "--limited", "--output", "json").json["buckets"]
    (asked,) = (each for each in listed if (each["entity_id"], each["resource"]) == (KEY, MODEL))
    assert (asked["rejected"], asked["limited_by"]) == (REFUSED, list(refused))
    assert asked["last_limited_by"] == list(refused)
    assert asked["fits_after_seconds"] is None or asked["fits_after_seconds"] > 0
    lines = shell("bucket", "list", "--limited", "--entity", KEY).out
    assert " now " not in next(each for each in lines.splitlines() if each.startswith(KEY))
    (window,) = shell("usage", "list", "--entity-id", KEY, "-r", MODEL, "--output", "json").json[
        "snapshots"
    ]
    assert (window["rejected_calls"], window["limited_by"]) == (REFUSED, list(refused))
    summary = shell("usage", "summary", "--output", "json").json
    assert (summary["calls"], summary["rejected"]) == (GRANTED, REFUSED)
    assert summary["limited_by"] == list(refused)


@pytest.mark.each_value_once
@on_both_engines
def test_the_page_says_what_refused(shell, refused):
    by = "{2} of {0} on {1}".format(*refused)
    with page_of(shell.url) as browser:

        def overview():
            return text_of(browser.page("overview/live"))

        found = eventually(overview, lambda text: f"last call refused by {by}" in text)
        assert f"last call refused by {by}" in found
        assert "fits now" not in found
        calls = f"{GRANTED:,} admitted and {REFUSED:,} rejected calls"
        found = eventually(lambda: browser.page("overview/live"), lambda text: calls in text)
        assert calls in found
        explained = text_of(browser.page("entity/explain", id=KEY, resource=MODEL))
        assert f"by {by}" in explained
        levels = text_of(browser.page("entity/live", id=KEY))
        assert f"last by {by}" in levels


@pytest.mark.each_value_once
@on_both_engines
def test_the_service_says_what_refused(shell, refused):
    with service_of(shell.url) as client:
        body = {"entity": KEY, "resource": MODEL, "amounts": {"rpm": 1}}
        answer = client.post("/v1/leases", {**body, "also": {ALL: {"usd": "2.50"}}})
        assert (answer.status, answer.json["limited_by"]) == (429, list(refused))
        query = f"entity={quote(KEY, safe='')}&resource={MODEL}"
        assert client.get(f"/v1/explain?{query}").json["last_limited_by"] == list(refused)
        (window,) = client.get(f"/v1/usage?{query}&window=daily").json["snapshots"]
        assert window["limited_by"] == list(refused)
        assert (window["calls"], window["rejected_calls"]) == (GRANTED, REFUSED)
        summary = client.get("/v1/usage/summary").json
        assert (summary["calls"], summary["limited_by"]) == (GRANTED, list(refused))

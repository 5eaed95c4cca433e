"""A page that is open while its store is not to be reached: it says so, and comes back."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.dashboard.conftest import Page, fill
from tests.dashboard.test_pages import eventually
from tests.support.dynamodb.proxy import Proxy
from tests.support.dynamodb.shared import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import RateLimiterUnavailable, SyncRepository
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.cli.shared.store import StoreLocation
from zae_limiter_ops.views.advice import GivenOptions


def stated_units(text):
    return float(re.search(r"a refresh costs about ([0-9.]+) read units", text)[1])


@pytest.fixture
def proxied():
    """An open page on DynamoDB, and the proxy on its way to the store."""
    with empty_table() as table, Proxy(shared_endpoint()) as proxy:
        repository = SyncRepository.open("default", url=store_url(table, shared_endpoint()))
        server = DashboardServer(
            lambda: SyncRepository.open("default", url=store_url(table, proxy.url)),
            DashboardSettings(port=0),
            GivenOptions(),
            "default",
        )
        thread = server.start()
        page = Page(repository, server)
        fill(page.limiter)
        yield page, proxy
        server.stop()
        thread.join(20)
        repository.close()


def overview(client):
    return client.get("/n/default/overview")


def live(client):
    return client.get("/n/default/overview/live")[2]


def is_back(text):
    return "debtor" in text and 'class="problem"' not in text


@pytest.mark.parametrize(
    "path",
    ["overview/live", "resources/live", "resource/live?name=gpt-4", "entity/live?id=acme-web"],
)
def test_a_refresh_costs_the_units_that_the_page_states(proxied, path):
    page, proxy = proxied
    client = page.client()
    assert is_back(eventually(lambda: live(client), is_back))
    client.get(f"/n/default/{path}")  # what is remembered for a minute
    time.sleep(2.1)  # an earlier answer would be repeated
    with proxy.measure() as seen:
        text = client.get(f"/n/default/{path}")[2]
    # The namespace is looked at in every fifth refresh.
    checks = [each for each in seen.requests if "#NAMESPACE#" in str(each.body)]
    spent = seen.rcu - sum(each.units for each in checks)
    assert stated_units(text) == pytest.approx(spent + 0.2)
    assert not seen.of("Scan")


def test_credentials_that_expire_are_told_and_renewed_without_a_restart(proxied):
    page, proxy = proxied
    client = page.client()
    assert is_back(eventually(lambda: live(client), is_back))
    with proxy.fault("expired", code="com.amazon.coral.service#ExpiredTokenException"):
        text = eventually(lambda: live(client), lambda text: "denies access" in text)
        assert "Renew the credentials" in text
        assert "comes back by itself" in text
        status, _, text = overview(client)
        assert status == 503
        assert "credentials" in text
    assert is_back(eventually(lambda: live(client), is_back))
    assert overview(client)[0] == 200


def test_missing_credentials_are_told(proxied):
    page, proxy = proxied
    client = page.client()
    assert is_back(eventually(lambda: live(client), is_back))
    code = "com.amazon.coral.service#MissingAuthenticationTokenException"
    with proxy.fault("deny", code=code):
        text = eventually(lambda: live(client), lambda text: "denies access" in text)
        assert "Renew the credentials" in text
    assert is_back(eventually(lambda: live(client), is_back))


def test_a_store_that_goes_down_under_an_open_page_is_told(proxied):
    page, proxy = proxied
    client = page.client()
    assert is_back(eventually(lambda: live(client), is_back))
    with proxy.refusing():
        text = eventually(lambda: live(client), lambda text: "does not answer" in text, 60)
        assert "Check that the store is running" in text
    assert is_back(eventually(lambda: live(client), is_back, 60))


@pytest.mark.parametrize("outage", ["refusing", "black_hole"])
def test_a_page_that_is_opened_in_an_outage_comes_back_by_itself(outage):
    """Nobody has opened the store before; the page asks again, and has what it was asked for."""
    with empty_table() as table, Proxy(shared_endpoint()) as proxy:
        repository = SyncRepository.open("default", url=store_url(table, shared_endpoint()))
        location = StoreLocation(store_url(table, proxy.url))
        server = DashboardServer(
            location.open, DashboardSettings(port=0), GivenOptions(), "default"
        )
        thread = server.start()
        page = Page(repository, server)
        fill(page.limiter)
        try:
            client = page.client()
            with proxy.refusing() if outage == "refusing" else proxy.fault("black_hole"):
                for path in ("overview", "entity?id=acme-web", "limits"):
                    status, _, text = client.get(f"/n/default/{path}")
                    assert status == 503
                    assert "comes back by itself" in text
                    assert "data-retry" in text
                    assert f'href="/n/default/{path}">Try again' in text
            eventually(lambda: client.get("/n/default/overview")[0], lambda status: status == 200)
            assert is_back(eventually(lambda: live(client), is_back))
            assert "acme-web" in client.page("entity", id="acme-web")
        finally:
            server.stop()
            thread.join(20)
            repository.close()


def test_requests_in_an_outage_do_not_queue_for_each_other():
    opened = []

    def fails():
        opened.append(time.monotonic())
        time.sleep(1)
        raise RateLimiterUnavailable("no answer")

    server = DashboardServer(fails, DashboardSettings(port=0), GivenOptions(), "default")
    thread = server.start()
    try:
        client = Page.client(SimpleNamespace(server=server))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: overview(client)[0], range(8)))
        assert answers == [503] * 8
        assert len(opened) == 1
    finally:
        server.stop()
        thread.join(20)

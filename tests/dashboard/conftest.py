"""A real server of the page on a real store, and a client that sends what a browser would."""

import http.client
import json
import threading
from urllib.parse import urlencode, urlsplit

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter_dashboard.server import DashboardServer
from zae_limiter_dashboard.settings import DashboardSettings
from zae_limiter_ops.views.advice import GivenOptions

HOSTILE = "<img src=x onerror=alert(1)>"


class Client:
    """A browser's requests without a browser."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.port, self.token = parts.port, parts.fragment.removeprefix("token=")
        self.origin = f"http://127.0.0.1:{self.port}"
        self.cookie = None

    def ask(self, method, path, body=None, **headers):
        """Return status, headers and text; a header that is None is left out."""
        sent = {
            "Host": f"127.0.0.1:{self.port}",
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "navigate",
            "Cookie": self.cookie,
            "Origin": self.origin if method == "POST" else None,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(
            method, path, body, {name: value for name, value in sent.items() if value is not None}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def sign_in(self):
        status, headers, text = self.ask("POST", "/session", json.dumps({"token": self.token}))
        assert status == 200, text
        self.cookie = headers["set-cookie"].partition(";")[0]
        return headers["set-cookie"]

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def page(self, path, **query):
        """Return the text of a page of the namespace, which must be found."""
        status, _, text = self.get(f"/n/default/{path}" + (f"?{urlencode(query)}" if query else ""))
        assert status == 200, text
        return text

    def post(self, path, **fields):
        status, _, text = self.ask("POST", f"/n/default/{path}", urlencode(fields))
        return status, text


class Page:
    """A running page, its store, and clients of it."""

    def __init__(self, repository, server):
        self.repository = repository
        self.limiter = SyncRateLimiter(repository)
        self.server = server

    def client(self, *, signed_in=True):
        client = Client(self.server.url)
        if signed_in:
            client.sign_in()
        return client


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'limits.db'}"


@pytest.fixture
def serve(url):
    """Return a function that starts a page with some settings on a filled store."""
    started = []

    def start(open_store=None, given=None, **settings):
        repository = SyncRepository.open("default", url=url)
        server = DashboardServer(
            open_store or (lambda: SyncRepository.open("default", url=url, config_cache_ttl=0)),
            DashboardSettings(**{"port": 0, **settings}),
            given or GivenOptions(),
            "default",
        )
        started.append((repository, server, server.start()))
        return Page(repository, server)

    yield start
    for repository, server, thread in started:
        server.stop()
        thread.join(10)
        repository.close()
        assert not [each for each in threading.enumerate() if each.name.startswith("dashboard")]


@pytest.fixture
def page(serve):
    page = serve(allow_edit=True)
    fill(page.limiter)
    return page


def fill(limiter):
    """Store a limited key, a parent, a hostile id, a slot and a debt."""
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    limiter.set_resource_defaults("gpt-4", [Limit.per_day("rpd", 10), Limit.per_day("tpd", 1000)])
    limiter.create_entity("acme")
    limiter.create_entity("acme-web", parent_id="acme", cascade=True)
    limiter.set_limits("acme", [Limit.per_day("rpd", 15)], "gpt-4")
    with limiter.acquire("acme-web", "gpt-4", {"rpd": 10}):
        pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("acme-web", "gpt-4", {"rpd": 3}):
        pass
    with limiter.acquire("close-1", "gpt-4", {"rpd": 8}):
        pass
    with limiter.acquire("debtor", "gpt-4", {"rpd": 1, "tpd": 900}) as lease:
        lease.adjust(tpd=400)
    with limiter.acquire(HOSTILE, "gpt-4", {"rpd": 9}):
        pass

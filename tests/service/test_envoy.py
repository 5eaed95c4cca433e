"""A real Envoy, with the configuration of the documentation, limited by a real service."""

import http.client
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.docs.pages import DOCS, blocks
from tests.service.envoy_proxy import (
    Envoy,
    Upstream,
    configuration_of_docs,
    find_envoy,
    placed,
    rate_limit_filter,
)
from zae_limiter import Limit

BINARY = find_envoy()
pytestmark = pytest.mark.skipif(BINARY is None, reason="Envoy is not installed: make envoy")


@pytest.fixture
def rules(tmp_path):
    """The rules of the documentation."""
    [text] = [
        block
        for block in blocks(DOCS / "operations/service.md", "yaml")
        if block.startswith("# envoy.yaml")
    ]
    path = tmp_path / "envoy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def upstream():
    upstream = Upstream()
    yield upstream
    upstream.stop()


@pytest.fixture
def proxy(tmp_path, upstream):
    """Return a function that starts Envoy before a service."""
    started = []

    def start(service_port, **of_filter):
        configuration = placed(
            configuration_of_docs(),
            listener=free_port(),
            upstream=upstream.port,
            limiter=service_port,
        )
        rate_limit_filter(configuration).update(of_filter)
        started.append(Envoy(BINARY, tmp_path, configuration))
        return started[-1]

    yield start
    for envoy in started:
        envoy.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def send(port, count, key="key-1"):
    """Send requests over one connection; return statuses with headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    found = []
    for _ in range(count):
        connection.request("GET", "/chat", headers={"x-api-key": key})
        answer = connection.getresponse()
        answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        found.append((answer.status, headers))
    connection.close()
    return found


def test_of_a_thousand_requests_exactly_those_pass_that_the_limits_allow(
    serve, limiter, rules, proxy, upstream
):
    limiter.set_resource_defaults("api", [Limit.per_day("rpm", 300)])
    limiter.set_limits("key-2", [Limit.per_day("rpm", 123)], "api")
    envoy = proxy(serve(grpc_port=0, rules=rules).settings.grpc_port, timeout="60s")
    keys = ["key-1", "key-2"] * 5
    with ThreadPoolExecutor(10) as pool:
        batches = list(pool.map(lambda key: (key, send(envoy.port, 100, key)), keys))
    counted = Counter((key, status) for key, batch in batches for status, _ in batch)
    assert counted == {
        ("key-1", 200): 300,
        ("key-1", 429): 200,
        ("key-2", 200): 123,
        ("key-2", 429): 377,
    }
    assert upstream.count == 423
    assert limiter.available("key-1", "api")["rpm"] == 0


def test_headers_arrive_at_the_client(serve, limiter, rules, proxy):
    limiter.set_resource_defaults("api", [Limit.per_day("rpm", 2)])
    envoy = proxy(serve(grpc_port=0, rules=rules).settings.grpc_port, timeout="60s")
    admitted, _, (status, rejected) = send(envoy.port, 3)
    assert admitted[1]["ratelimit"].startswith('"rpm";r=1;')
    assert admitted[1]["ratelimit-policy"] == '"rpm";q=2;w=86400'
    assert status == 429
    assert 43_000 <= int(rejected["retry-after"]) <= 43_201
    assert rejected["content-type"] == "application/json"


@pytest.mark.parametrize(("denies", "status"), [(True, 500), (False, 200)])
def test_an_outage_of_the_service_follows_the_failure_mode(
    serve, limiter, rules, proxy, denies, status
):
    limiter.set_resource_defaults("api", [Limit.per_day("rpm", 1)])
    service = serve(grpc_port=0, rules=rules)
    envoy = proxy(service.settings.grpc_port, failure_mode_deny=denies, timeout="60s")
    assert [status for status, _ in send(envoy.port, 2)] == [200, 429]
    service.stop()
    time.sleep(0.2)
    assert [found for found, _ in send(envoy.port, 2)] == [status, status]

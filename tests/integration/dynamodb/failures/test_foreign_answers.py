"""A portal or proxy that answers 200 with JSON of its own: an error that says so, on every call."""

import http.client
import http.server
import json
import re
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from tests.support.dynamodb import shared_endpoint
from tests.support.dynamodb.tables import empty_table, store_url
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter_ops.manifest import LimitsManifest

LIMITS = [Limit.per_minute("rpm", 60)]
TIMEOUT_S = 0.2
# What no answer of DynamoDB looks like.
OF_A_PORTAL = (
    {"message": "please log in"},
    {"status": "ok", "items": []},
    {"error": {"code": 511, "Item": 1}},
    [],
    None,
    "text",
    5,
)
# What looks like an answer of DynamoDB, and is none of this table.
ODD = (
    {"Attributes": []},
    {"Attributes": {"x": {"S": "y"}}},
    {"Item": {"x": {"S": "y"}}},
    {"Items": [{"x": {"S": "y"}}], "Count": 1},
    {"Items": [{"PK": {"N": "1"}, "SK": {"S": "x"}}]},
    {"Responses": {"TABLE": [{"x": {"S": "y"}}]}},
    {"Item": {"PK": {"S": "x"}, "SK": {"S": "y"}}},
    {"Items": [{"PK": {"S": "x"}, "SK": {"S": "y"}}]},
    {"Responses": {"TABLE": [{"PK": {"S": "x"}, "SK": {"S": "y"}}]}},
    {"Responses": [{"Item": {"PK": {"S": "x"}, "SK": {"S": "y"}}}]},
    {"Responses": []},
    {"Responses": [{}] * 3},
    {"Responses": {}, "UnprocessedKeys": {"TABLE": {"x": 1}}},
    {"UnprocessedItems": {"TABLE": [{}]}},
    {"Table": {"TableStatus": 5}},
    {"Item": {"x": {"S": "y"}}, "Items": [], "Responses": {}, "Attributes": {}},
)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.answer is None:
            status, headers, answer = self._forward(body)
        else:
            status, headers, answer = 200, [], self.server.answer
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body):
        connection = http.client.HTTPConnection(urlsplit(shared_endpoint()).netloc, timeout=60)
        try:
            connection.request("POST", "/", body, dict(self.headers))
            response = connection.getresponse()
            kept = ("x-amz", "content-type", "date")
            headers = [pair for pair in response.getheaders() if pair[0].lower().startswith(kept)]
            return response.status, headers, response.read()
        finally:
            connection.close()

    def log_message(self, *args):
        pass


class Portal(http.server.ThreadingHTTPServer):
    """Leads to the store until ``answers`` says what it answers instead."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def answers(self, content, table):
        self.answer = json.dumps(content).replace("TABLE", table).encode()
        try:
            yield
        finally:
            self.answer = None


@pytest.fixture(scope="module")
def portal():
    with Portal() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def table():
    with empty_table() as name:
        yield name


@pytest.fixture
def repository(portal, table):
    builder = SyncRepository.builder().url(store_url(table, portal.url)).config_cache_ttl(0)
    builder.request_timeout(TIMEOUT_S)
    with in_the_end(builder.build) as opened:
        in_the_end(lambda: opened.set_limits("key", LIMITS, "known"))
        in_the_end(lambda: acquire(opened, "key", "known", None))
        yield opened


def in_the_end(call):
    """Call until the store answers in time, which a busy machine may prevent at first."""
    for _ in range(50):
        with suppress(RateLimiterUnavailable):
            return call()
    return call()


def acquire(repository, entity_id, resource, limits):
    with SyncRateLimiter(repository).acquire(entity_id, resource, {"rpm": 1}, limits=limits):
        pass


MANIFEST = LimitsManifest.from_dict(
    {"entities": {"key": {"parent": "team"}}, "system": {"limits": {"rpm": 1}}}
)
CALLS = {
    "acquire": lambda repo: acquire(repo, "key", "known", LIMITS),
    "acquire a new bucket": lambda repo: acquire(repo, "another", "known", LIMITS),
    "acquire by stored limits": lambda repo: acquire(repo, "key", "known", None),
    "check_availability": lambda repo: SyncRateLimiter(repo).check_availability("key", "known"),
    "create_entity": lambda repo: repo.create_entity("new"),
    "get_entity": lambda repo: repo.get_entity("key"),
    "delete_entity": lambda repo: repo.delete_entity("key"),
    "get_children": lambda repo: repo.get_children("key"),
    "set_parent": lambda repo: repo.set_parent("key", "team"),
    "list_entities": lambda repo: repo.list_entities(10),
    "list_resources": lambda repo: repo.list_resources(),
    "set_limits": lambda repo: repo.set_limits("key", LIMITS, "other"),
    "get_limits": lambda repo: repo.get_limits("key", "known"),
    "delete_limits": lambda repo: repo.delete_limits("key", "known"),
    "set_system_defaults": lambda repo: repo.set_system_defaults(LIMITS),
    "get_system_defaults": lambda repo: repo.get_system_defaults(),
    "set_resource_defaults": lambda repo: repo.set_resource_defaults("known", LIMITS),
    "list_entities_with_custom_limits": lambda repo: repo.list_entities_with_custom_limits("known"),
    "resolve_limits": lambda repo: repo.resolve_limits("key", "known"),
    "get_bucket": lambda repo: repo.get_bucket("key", "known", "rpm"),
    "get_buckets": lambda repo: repo.get_buckets("key"),
    "list_buckets": lambda repo: repo.list_buckets(10),
    "get_resource_buckets": lambda repo: repo.get_resource_buckets("known"),
    "reset_bucket": lambda repo: repo.reset_bucket("key", "known"),
    "top_up": lambda repo: repo.top_up("key", "known", {"rpm": 1}),
    "register_namespace": lambda repo: repo.register_namespace("new"),
    "list_namespaces": lambda repo: repo.list_namespaces(),
    "get_namespace": lambda repo: repo.get_namespace("default"),
    "get_audit_events": lambda repo: repo.get_audit_events(),
    "get_usage_snapshots": lambda repo: repo.get_usage_snapshots("key"),
    "get_usage_summary": lambda repo: repo.get_usage_summary(resource="known"),
    "get_version_record": lambda repo: repo.get_version_record(),
    "get_provisioner_state": lambda repo: repo.get_provisioner_state(),
    "plan": lambda repo: repo.provisioner().plan(MANIFEST),
    "apply": lambda repo: repo.provisioner().apply(MANIFEST),
    "diff": lambda repo: repo.provisioner().diff(MANIFEST),
    "export": lambda repo: repo.provisioner().export(),
}


@pytest.mark.fast(
    "acquire a new bucket",
    "create_entity",
    "get_children",
    "list_resources",
    "delete_limits",
    "set_resource_defaults",
    "get_bucket",
    "get_resource_buckets",
    "register_namespace",
    "get_audit_events",
    "get_version_record",
    "apply",
)
@pytest.mark.parametrize("name", CALLS)
def test_what_a_portal_answers_is_no_answer(repository, portal, table, name):
    content = OF_A_PORTAL[len(name) % len(OF_A_PORTAL)]
    with portal.answers(content, table), pytest.raises(RateLimiterUnavailable) as raised:
        CALLS[name](repository)
    # An acquire looks for its write after such an answer, and may run out of time.
    assert re.search("check endpoint_url|took too long", str(raised.value))


FAST = 1  # each of them takes seconds: calls are made again until their time is over


@pytest.mark.parametrize(
    "content",
    [*ODD[1 : 1 + FAST], *(pytest.param(each, marks=pytest.mark.slow) for each in ODD[1 + FAST :])],
    ids=str,
)
def test_an_odd_answer_never_raises_an_error_of_python(repository, portal, table, content):
    for call in CALLS.values():
        with portal.answers(content, table), suppress(ZAELimiterError):
            call(repository)

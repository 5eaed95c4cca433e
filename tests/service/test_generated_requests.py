"""Whatever is sent to the service: no defect, no secret, and no change without the right to it.

Tests that compare all rows come first: rejections of the others are counted up to 30 seconds later.
"""

import hashlib
import json

import grpc
import pytest
from envoy.service.ratelimit.v3 import rls_pb2
from hypothesis import given
from hypothesis import strategies as st
from zae_limiter_contract.stopwatch import Stopwatch

from tests.service.running import ThreadedService, service_settings
from tests.support import raw_http
from tests.support.generated import (
    QUOTED_BYTES,
    SIGNS_OF_A_BREACH,
    as_query,
    examples,
    on_one_line,
    quoted,
    spoiled,
    texts,
)
from tests.support.sqlite_rows import rows_of
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

ANSWERED_WITHIN_S = 5
SECRET = "zael-secret"
ROLES = {"gateway": "acquire", "reader": "read", "operator": "manage"}
OTHER = "other"  # a namespace that no token is for

GOOD = {
    "entity": ["acme", "acme-web"],
    "entity_id": ["acme", "new-1", "new-2"],
    "resource": ["gpt-4"],
    "amounts": [{"rpd": 1}, {"tpd": 5, "rpd": 1}, {}],
    "also": [{"gpt-5": {"rpd": 1}}, None],
    "timeout": [0, None],
    "ttl": [30, 0.1, None],
    "limits": [["rpm:5/min"], [{"name": "rpd", "capacity": 5}], []],
    "if_missing": [True, False, None],
    "merge": [True, False, None],
    "on_unavailable": ["allow", "none", None],
    "name": ["Acme", None],
    "parent_id": ["acme", None],
    "cascade": [True, False, None],
    "metadata": [{"a": "b"}, None],
    "consume": ["rpd=1", None],
    "window": ["daily", "hourly", None],
    "start": ["2026-01-01", None],
    "end": ["2030-01-01T00:00:00Z", None],
    "limit": ["1", "2", None],
    "cursor": ["acme", None],
    "next_key": [None],
    "parent": ["acme", None],
}
LEASE = {"entity", "resource", "amounts", "also", "timeout", "ttl"}
COST, LIMITS = {"amounts", "also"}, {"limits", "if_missing", "merge"}
CREATED = {"entity_id", "name", "parent_id", "cascade", "metadata", "if_missing"}
USAGE = {"entity", "resource", "window", "start", "end"}
LEASE_ID = "lease-of-the-gateway"  # stands for that of an open lease
OF_LEASE = "/v1/leases/{}/"
# The fields of the body or of the query, by operation.
READS = {
    "GET /v1/explain": {"entity", "resource", "consume"},
    "GET /v1/openapi.json": set(),
    "GET /v1/entities": {"parent", "limit", "cursor"},
    "GET /v1/entities/{}": set(),
    "GET /v1/entities/{}/limits": {"resource"},
    "GET /v1/resources": set(),
    "GET /v1/resources/{}/limits": set(),
    "GET /v1/system/limits": set(),
    "GET /v1/usage": USAGE | {"limit", "next_key"},
    "GET /v1/usage/summary": USAGE,
    "GET /metrics": set(),
    "POST /v1/check": {"entity", "resource", "amounts"},
}
LEASES = {
    "POST /v1/leases": LEASE,
    f"POST {OF_LEASE}settle": COST,
    f"POST {OF_LEASE}adjust": COST,
    f"POST {OF_LEASE}renew": {"ttl"},
    "DELETE /v1/leases/{}": set(),
}
CHANGES = {
    "POST /v1/entities": CREATED,
    "DELETE /v1/entities/{}": set(),
    "PUT /v1/entities/{}/parent": {"parent_id", "cascade"},
    "PUT /v1/entities/{}/limits": LIMITS,
    "DELETE /v1/entities/{}/limits": {"resource"},
    "PUT /v1/resources/{}/limits": LIMITS,
    "DELETE /v1/resources/{}/limits": set(),
    "PUT /v1/system/limits": LIMITS | {"on_unavailable"},
    "DELETE /v1/system/limits": set(),
}
FIELDS = READS | LEASES | CHANGES

TEXTS = texts(["acme", "gpt-4", "default", OTHER, "rpd", "rpm:5/min", "rpd=1", "true", "60"])
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*GOOD, "surprise"])
PARTS = st.sampled_from(["acme", "gpt-4", "new-1"]) | TEXTS.map(quoted) | QUOTED_BYTES
ODD_BODIES = st.one_of(
    VALUES.map(json.dumps).map(str.encode),
    st.binary(max_size=60),
    st.sampled_from([b"[" * 5_000, b'{"amounts":' * 2_000, b'{"ttl":' + b"9" * 5_000 + b"}"]),
)
MORE_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Idempotency-Key", "traceparent", "X-Forwarded-For", "Cookie", "Range"]),
        TEXTS
        | st.sampled_from(["key-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
    ),
    max_size=2,
)


def right_fields(names):
    return st.fixed_dictionaries({name: st.sampled_from(GOOD[name]) for name in sorted(names)})


@st.composite
def requests(draw, operation):
    """Return method, target, headers and body of a request that is nearly right."""
    method, path = operation.split(" ")
    path = path.format(draw(st.just(LEASE_ID) | PARTS if operation in LEASES else PARTS))
    chosen = draw(st.sampled_from(["", "", f"namespace={OTHER}", "namespace=default"]))
    right = right_fields(FIELDS[operation])
    fields = draw(right | spoiled(right, NAMES, VALUES))
    if method in ("POST", "PUT"):
        given_fields = {name: value for name, value in fields.items() if value is not None}
        whole = st.just(json.dumps(given_fields).encode())
        body = draw(st.one_of(whole, whole, whole, ODD_BODIES))
        return method, f"{path}?{chosen}" if chosen else path, draw(MORE_HEADERS), body
    query = as_query({name: value for name, value in fields.items() if value is not None})
    query = "&".join(part for part in (query, chosen) if part)
    return method, f"{path}?{query}" if query else path, draw(MORE_HEADERS), b""


class Site:
    """A running service with tokens, on a store with two namespaces."""

    def __init__(self, folder):
        self.path = folder / "limits.db"
        url = f"sqlite:///{self.path}?synchronous=OFF"
        for name in ("default", OTHER):
            with SyncRepository.open(name, url=url) as repository:
                limiter = SyncRateLimiter(repository)
                limiter.set_system_defaults([Limit.per_day("rpd", 10**9)])
                limiter.create_entity("acme", metadata={"of": f"sign-of-{name}"})
                with limiter.acquire("acme", "gpt-4", {"rpd": 1}):
                    pass
        tokens = folder / "tokens.yaml"
        lines = [
            f"  - {{name: {name}, role: {role}, namespaces: [default], sha256: {digest(name)}}}\n"
            for name, role in ROLES.items()
        ]
        tokens.write_text("tokens:\n" + "".join(lines), encoding="utf-8")
        self.service = ThreadedService(
            service_settings(url=url, no_auth=False, tokens=tokens, grpc_port=0)
        )
        self.lease = LEASE_ID
        body = {"entity": "acme", "resource": "gpt-4", "amounts": {"rpd": 5}, "ttl": 600}
        asked = "POST", "/v1/leases", [], json.dumps(body).encode()
        self.lease = json.loads(self.answer(asked, "gateway").body)["id"]

    def answer(self, asked, name):
        """Return the answer to a caller, of which everything holds that holds for all answers."""
        method, target, more, body = asked
        headers = {
            "Host": f"127.0.0.1:{self.service.port}",
            "Content-Type": "application/json",
        }
        if name is not None:
            headers["Authorization"] = f"Bearer {token(name)}"
        sent = [(key.encode(), on_one_line(value)) for key, value in [*headers.items(), *more]]
        target = target.replace(LEASE_ID, self.lease)
        data = raw_http.request(method.encode(), target.encode(), sent, body)
        with Stopwatch() as watch:
            found = raw_http.ask(self.service.port, data)
        assert watch.within(ANSWERED_WITHIN_S), watch
        assert 200 <= found.status < 500, found
        for sign in (*SIGNS_OF_A_BREACH[1:], SECRET.encode(), f"sign-of-{OTHER}".encode()):
            assert sign not in found.whole, found
        assert "x-injected" not in found.headers
        if found.kind.endswith("json"):
            json.loads(found.body)
        return found

    def rows(self):
        return rows_of(self.path)

    def rows_of_other(self):
        return {
            table: [row for row in rows if self.other_id in row]
            for table, rows in self.rows().items()
        }

    @property
    def other_id(self):
        [found] = [row[0] for row in self.rows()["namespace"] if OTHER in row]
        return found


def token(name):
    return f"{SECRET}-{name}"


def digest(name):
    return hashlib.sha256(token(name).encode()).hexdigest()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("service"))
    yield site
    site.service.stop()


CLAIMS = st.none() | TEXTS | TEXTS.map("Bearer {}".format) | st.just(f"Basic {token('operator')}")


@pytest.mark.parametrize("operation", FIELDS)
@examples(12)
@given(data=st.data(), claim=CLAIMS)
def test_a_stranger_gets_and_changes_nothing(site, operation, data, claim):
    before = site.rows()
    method, target, more, body = data.draw(requests(operation))
    more = more if claim is None else [*more, ("Authorization", claim)]
    found = site.answer((method, target, more, body), None)
    assert found.status in (400, 401), found
    assert site.rows() == before


@pytest.mark.parametrize("operation", FIELDS)
@examples(12)
@given(data=st.data())
def test_a_reader_changes_nothing(site, operation, data):
    before = site.rows()
    found = site.answer(data.draw(requests(operation)), "reader")
    assert operation in READS or found.status in (400, 403, 404), found
    assert site.rows() == before


@st.composite
def questions(draw):
    """Return a question of Envoy that is nearly right."""
    asked = rls_pb2.RateLimitRequest(
        domain=draw(TEXTS.map(_valid)), hits_addend=draw(st.sampled_from([0, 1, 5, 2**32 - 1]))
    )
    for _ in range(draw(st.integers(0, 3))):
        descriptor = asked.descriptors.add()
        right = {"entity": "acme", "resource": "gpt-4", "limit": "rpd"}
        fields = draw(spoiled(st.just(right), st.sampled_from(list(right)), TEXTS))
        for key, value in fields.items():
            descriptor.entries.add(key=key, value=_valid(value))
        if draw(st.booleans()):
            descriptor.hits_addend.value = draw(st.integers(0, 2**64 - 1))
        if draw(st.booleans()):
            descriptor.limit.requests_per_unit = draw(st.integers(0, 2**32 - 1))
            descriptor.limit.unit = draw(st.integers(0, 7))
    return asked


def _valid(text):
    return text.encode("utf-8", "replace").decode()


@pytest.fixture(scope="module")
def envoy(site):
    """Return a function that asks as Envoy does."""
    with grpc.insecure_channel(f"127.0.0.1:{site.service.settings.grpc_port}") as channel:
        ask = channel.unary_unary(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            rls_pb2.RateLimitRequest.SerializeToString,
            rls_pb2.RateLimitResponse.FromString,
        )

        def asked(question, name):
            claim = () if name is None else (("authorization", f"Bearer {token(name)}"),)
            try:
                return grpc.StatusCode.OK, ask(question, timeout=30, metadata=claim)
            except grpc.RpcError as error:
                return error.code(), error.details()

        yield asked


@examples(30)
@given(question=questions(), name=st.sampled_from([None, "reader", "nobody"]))
def test_envoy_without_the_right_to_acquire_changes_nothing(site, envoy, question, name):
    before = site.rows()
    code, _ = envoy(question, name)
    denied = {"reader": grpc.StatusCode.PERMISSION_DENIED}
    assert code is denied.get(name, grpc.StatusCode.UNAUTHENTICATED)
    assert site.rows() == before


@pytest.mark.parametrize("operation", FIELDS)
@examples(12)
@given(data=st.data(), name=st.sampled_from(["gateway", "operator", "operator"]))
def test_no_request_is_a_defect_or_leaves_its_namespace(site, operation, data, name):
    before = site.rows_of_other()
    found = site.answer(data.draw(requests(operation)), name)
    if name == "gateway" and operation in CHANGES:
        assert found.status in (400, 403, 404), found
    assert site.rows_of_other() == before


@examples(60)
@given(question=questions())
def test_envoy_gets_a_decision_or_a_refusal(site, envoy, question):
    before = site.rows_of_other()
    with Stopwatch() as watch:
        code, answer = envoy(question, "gateway")
    assert watch.within(ANSWERED_WITHIN_S), watch
    if code is grpc.StatusCode.OK:
        assert len(answer.statuses) == len(question.descriptors) > 0
    else:
        assert code is grpc.StatusCode.INVALID_ARGUMENT, answer
        assert SECRET not in answer
    assert site.rows_of_other() == before

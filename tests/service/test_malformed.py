"""Requests that no client sends on purpose never crash the service, never charge, never get 500."""

import json
import random
import socket
import time
from contextlib import ExitStack

import grpc
import pytest
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

ENTITY = "victim"
GOOD = {"entity": ENTITY, "resource": "gpt-4", "amounts": {"tpd": 1}}
VALUES = [
    None, True, -1, 0.5, 10**30, "", "x" * 5000, [], {}, [1], {"a": 1}, "\x00", "\ud800", "💥",
    [[[[[[[[[[[]]]]]]]]]]], -(10**400), 1e308,
]  # fmt: skip
HEADS = [
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 6",
    "Content-Length: -1",
    "Content-Length: +5",
    "Content-Length: 0x5",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: \x0bchunked",
    " Content-Length: 5",
    "X: y\r\n Content-Length: 5",
    "Host: evil.example",
    "Authorization: Bearer a\r\nAuthorization: Bearer b",
    "Content-Type: text/plain",
    "Expect: 100-continue",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c",
    "Upgrade: websocket\r\nConnection: Upgrade",
    "X" * 70_000 + ": y",
]
PATHS = [
    "/v1/leases", "/v1/leases/x/settle", "/v1/leases/..%2f..%2fetc/settle", "/v1/check",
    "//v1/leases",
    "/v1/leases/%ff/settle", "/v1/leases/%00/adjust", "/v1/entities", "/v1/entities/%2e%2e/limits",
    "/v1/explain?entity=%ff", "/v1/leases?namespace=" + "n" * 9000, "/v1/leases?a&b", "*",
    "http://x/",
]  # fmt: skip


def malformed(chance, port):
    """Return the bytes of one request."""
    make = chance.choice([random_bytes, wrong_types, smuggled, broken_json, odd_lines, wrong_paths])
    return make(chance, port)


def request(port, body, *, path="/v1/leases", method="POST", head=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "replace")
    extra = f"{head}\r\n" if head else f"Content-Length: {len(data)}\r\n"
    lines = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\n{extra}\r\n"
    )
    return lines.encode("utf-8", "replace") + data


def random_bytes(chance, port):
    return chance.randbytes(chance.randrange(1, 400)) + b"\r\n\r\n"


def wrong_types(chance, port):
    """Break one field. A good value would be a good request, so the amounts are always wrong."""
    body = {**GOOD, "amounts": {"tpd": chance.choice([-1, 0.5, "x", None, True, [], 10**30])}}
    body[chance.choice([*GOOD, "ttl", "timeout", "also", "surprise"])] = chance.choice(VALUES)
    if body["amounts"] == {}:
        body["surprise"] = 1
    return request(port, body)


def smuggled(chance, port):
    inside = request(port, GOOD)
    body = b"0\r\n\r\n" + (inside if chance.random() < 0.5 else b"")
    head = chance.choice([head for head in HEADS if head])
    # With a valid length a request hidden in a body is a body, and not JSON.
    return request(port, body, head=head)


def broken_json(chance, port):
    good = json.dumps(GOOD)
    at = chance.randrange(len(good))
    body = chance.choice(
        [
            good[:at].encode(),
            (good[:at] + chance.choice('{}[],:"\\') + good[at:]).encode() + b"}",
            b"[" * chance.randrange(1, 50_000),
            b'{"a":' * chance.randrange(1, 20_000),
            b'{"amounts":' + b"9" * chance.randrange(10, 9000) + b"}",
            b"\xef\xbb\xbf" + good.encode(),
            good.encode("utf-16"),
        ]
    )
    return request(port, body)


def odd_lines(chance, port):
    method = chance.choice(
        ["GET", "PUT", "TRACE", "CONNECT", "get", "POST\t", "A" * 9000, "", "PRI"]
    )
    version = chance.choice(["HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/9", "", "http/1.1"])
    path = chance.choice(PATHS)
    line = f"{method} {path} {version}\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    return line.encode()


def wrong_paths(chance, port):
    return request(port, {"amounts": {"tpd": 1}}, path=chance.choice(PATHS[1:]))


def send(port, data):
    """Send bytes, and return what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65_536):
                answer += chunk
        except ConnectionError:
            return b""
        return answer


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_requests_never_crash_and_never_charge(serve, limiter, count):
    service = serve()
    before = limiter.available(ENTITY, "gpt-4")
    statuses = {}
    for seed in range(count):
        data = malformed(random.Random(seed), service.port)
        answer = send(service.port, data)
        status = answer[9:12].decode("latin-1")
        statuses[status] = statuses.get(status, 0) + 1
        assert status != "500", (seed, data[:300], answer)
        assert b"HTTP/1.1 201" not in answer, (seed, data[:300], answer)
        assert b"Traceback" not in answer, (seed, answer)
    assert limiter.available(ENTITY, "gpt-4") == before
    client = service.client()
    assert client.metric("leases_open") == 0
    assert client.metric("requests_in_progress") == 1
    assert client.lease({"tpd": 1})
    assert statuses.get("400", 0) > count // 4


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_malformed_messages_of_grpc_never_crash_and_never_charge(serve, limiter, count):
    service = serve(grpc_port=0)
    before = limiter.available(ENTITY, "gpt-4")
    good = rls_pb2.RateLimitRequest(domain="any")
    for key, value in (("entity", ENTITY), ("resource", "gpt-4"), ("limit", "tpd")):
        (good.descriptors or [good.descriptors.add()])[0].entries.add(key=key, value=value)
    whole = good.SerializeToString()
    answers = set()
    with grpc.insecure_channel(f"127.0.0.1:{service.settings.grpc_port}") as channel:
        ask = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        for seed in range(count):
            chance = random.Random(seed)
            # A request that is cut short has no resource, or is no message.
            cut = whole[: chance.randrange(len(whole) - 20)]
            data = chance.choice([chance.randbytes(chance.randrange(1, 400)), cut])
            with pytest.raises(grpc.RpcError) as caught:
                ask(data, timeout=60)
            answers.add(caught.value.code())
            assert "Traceback" not in (caught.value.details() or "")
            send(service.settings.grpc_port, data)  # and as bytes that are no HTTP/2
    assert grpc.StatusCode.UNAVAILABLE not in answers
    assert limiter.available(ENTITY, "gpt-4") == before
    assert service.client().get("/readyz").status == 200
    assert asked_well(service, good) == rls_pb2.RateLimitResponse.OK


def asked_well(service, request):
    with grpc.insecure_channel(f"127.0.0.1:{service.settings.grpc_port}") as channel:
        stub = rls_pb2_grpc.RateLimitServiceStub(channel)
        return stub.ShouldRateLimit(request, timeout=60).overall_code


def test_a_slow_body_is_bounded(serve):
    service = serve()
    announced = request(service.port, b"", head="Content-Length: 300000")
    assert send(service.port, announced).startswith(b"HTTP/1.1 413")
    head = request(service.port, b"", head="Transfer-Encoding: chunked")
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    # 17 chunks are the first bytes beyond the bound, so nothing is left unread.
    assert send(service.port, head + chunk * 17).startswith(b"HTTP/1.1 413")


def test_too_many_requests_at_once_are_refused(serve):
    service = serve(max_requests=3)
    client = service.client()
    announced = request(service.port, b"", head="Content-Length: 10")  # whose body never comes
    with ExitStack() as connections:
        for _ in range(3):
            connection = socket.create_connection(("127.0.0.1", service.port))
            connections.enter_context(connection)
            connection.sendall(announced)
        answer = wait_for(lambda: client.get("/healthz"), status=503)
        assert answer.headers["retry-after"] == "1"
    wait_for(lambda: client.get("/healthz"), status=200)
    assert client.metric("refused_total", reason="overloaded") >= 1


def wait_for(ask, status):
    give_up_at = time.monotonic() + 30
    while (answer := ask()).status != status:
        assert time.monotonic() < give_up_at, answer
        time.sleep(0.02)
    return answer

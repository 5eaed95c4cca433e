"""Outages of the store, the operator's page, OpenTelemetry, and the command line."""

import gc
import re
import socket
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.ops.cli.inprocess import CommandLine
from tests.service.running import service_settings
from zae_limiter.testing import outage
from zae_limiter_service.launch import bind, make_page
from zae_limiter_service.tracing import traced


def store_of(service):
    return service.worker.stores.root


def test_in_an_outage_a_blocking_policy_answers_503(serve):
    service = serve()
    client = service.client()
    lease = client.lease({"tpd": 1})
    with outage(store_of(service)):
        answer = client.acquire({"tpd": 1})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert client.settle(lease, {"tpd": 2}).status == 503
        assert client.get("/readyz").status == 503
        assert client.get("/healthz").status == 200
    assert client.get("/readyz").status == 200


def test_in_an_outage_an_allowing_policy_grants_a_lease_without_a_charge(serve, limiter):
    limiter.set_system_defaults(limiter.get_resource_defaults("gpt-4"), "allow")
    service = serve()
    client = service.client()
    client.delete(f"/v1/leases/{client.lease({'tpd': 1})}")  # the policy is known from now on
    with outage(store_of(service)):
        answer = client.acquire({"tpd": 5})
        assert (answer.status, answer.json["amounts"]) == (201, {})
        assert client.settle(answer.json["id"], {"tpd": 5}).status == 200
    assert client.metric("uncharged_total") == 1
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000


def test_a_settlement_that_an_outage_stopped_can_be_repeated_and_not_replaced(serve, limiter):
    service = serve()
    client = service.client()
    lease = client.lease({"tpd": 400})
    with outage(store_of(service)):
        assert client.settle(lease, {"tpd": 150}).status == 503
        assert client.settle(lease, {"tpd": 99}).status == 409
        assert client.delete(f"/v1/leases/{lease}").status == 409
    assert client.settle(lease, {"tpd": 150}).status == 200
    assert limiter.available("user-1", "gpt-4")["tpd"] == 9850


def test_a_rollback_that_an_outage_stopped_can_be_repeated(serve, limiter):
    service = serve()
    client = service.client()
    lease = client.lease({"tpd": 400})
    with outage(store_of(service)):
        assert client.delete(f"/v1/leases/{lease}").status == 503
    assert client.delete(f"/v1/leases/{lease}").status == 204
    assert limiter.available("user-1", "gpt-4")["tpd"] == 10_000


def test_requests_leave_nothing_behind_for_the_garbage_collector(serve):
    """A collection looks at every open lease, so requests must not make it necessary."""
    client = serve().client()
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            client.settle(client.lease({"tpd": 1}), {"tpd": 1})
        left = [each for each in gc.get_objects() if type(each) is RequestResponseCycle]
    finally:
        gc.enable()
    assert len(left) <= 3


def test_an_idle_connection_stays_open_for_clients_that_pool_them(serve):
    """Else the service closes a connection at the moment at which a request is sent over it."""
    connection = serve().client().connected()
    for pause_s in (0, 6):
        time.sleep(pause_s)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status":"ok"}'


def test_small_answers_are_sent_without_delay():
    """Event loops set TCP_NODELAY only where the listening socket names its protocol."""
    with bind("127.0.0.1", 0, "port") as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_the_page_is_served_beside_the_routes(serve, url):
    said = []
    service = serve(dashboard=True, page=make_page(service_settings(url=url, port=80), said.append))
    assert re.match(r"dashboard at http://127\.0\.0\.1:80/#token=\S+", said[0])
    client = service.client()
    # The page was made for another port, so its own guard answers here, and not the routes.
    assert b"this host is not served here" in client.get("/").body
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/v1/openapi.json").status == 200


async def test_a_request_has_a_span_under_that_of_its_caller():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 201, "headers": []})

    async def sent(message):
        assert message["status"] == 201

    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace_id}-b7ad6b7169203331-01".encode()
    scope = {"type": "http", "method": "POST", "headers": [(b"traceparent", parent)]}
    await traced(app, provider)(scope, None, sent)
    [span] = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == trace_id
    assert span.attributes["http.response.status_code"] == 201


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--tokens FILE"),
        (["--no-auth", "--host", "0.0.0.0"], "not loopback"),
        (["--no-auth", "--workers", "2", "--url", "memory://"], "memory of their own"),
        (["--no-auth", "--url", "sqlite:///missing.db"], "no store at"),
        (["--no-auth", "--grpc-port", "0", "--rules", "rules.yaml"], "rules.yaml:1: "),
        (["--tokens", "rules.yaml"], "rules.yaml:1: "),
        (["--tokens", "missing.yaml"], "missing.yaml: No such file or directory"),
    ],
)
def test_a_wrong_command_is_told_before_anything_is_served(
    url, limiter, tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    ran = CommandLine(capsys, None)(
        "serve", *(() if "--url" in arguments else ("--url", url)), *arguments
    )
    assert ran.code != 0
    assert message in " ".join(ran.err.split())

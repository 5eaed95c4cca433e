"""Who may call the service, and what is refused and counted."""

import hashlib
import ssl
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from tests.service.running import service_settings
from zae_limiter import SyncRepository
from zae_limiter.exceptions import ValidationError
from zae_limiter_service.access import read_access
from zae_limiter_service.files import FileError
from zae_limiter_service.settings import ServiceSettings

ACQUIRE = {"entity": "e", "resource": "gpt-4", "amounts": {"tpd": 1}}
# The same over gRPC.
DESCRIPTOR = ratelimit_pb2.RateLimitDescriptor()
for key, value in {"entity": "e", "resource": "gpt-4", "limit": "rpd"}.items():
    DESCRIPTOR.entries.add(key=key, value=value)
ADMITTED = rls_pb2.RateLimitResponse.OK
SIGNED_BY = {"server": "ca", "gateway": "ca", "reader": "ca", "mallory": "stranger-ca"}


@pytest.fixture
def guarded(serve, tokens):
    return serve(no_auth=False, tokens=tokens)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "secret-gateway"},
        {"Authorization": "Basic secret-gateway"},
        {"Authorization": "Bearer " + "x" * 600},
        {"Authorization": "Bearer é"},
    ],
)
def test_without_a_token_nothing_answers(guarded, headers):
    client = guarded.client()
    for method, path in [("POST", "/v1/leases"), ("GET", "/v1/usage"), ("GET", "/nowhere")]:
        answer = client.ask(method, path, ACQUIRE if method == "POST" else None, **headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    operator = guarded.client("secret-operator")
    assert operator.metric("refused_total", reason="unauthenticated") == 3


def test_a_probe_on_this_machine_needs_no_token(guarded):
    assert guarded.client().get("/healthz").json == {"status": "ok"}
    assert guarded.client().get("/readyz").status == 200


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("gateway", {"lease", "check"}),
        ("reader", {"check", "read", "metrics"}),
        ("operator", {"lease", "check", "read", "write", "metrics"}),
    ],
)
def test_a_role_permits_its_requests_only(guarded, name, permitted):
    client = guarded.client(f"secret-{name}")
    answers = {
        "lease": client.post("/v1/leases", ACQUIRE),
        "check": client.post("/v1/check", ACQUIRE),
        "read": client.get("/v1/resources/gpt-4/limits"),
        "write": client.ask("PUT", "/v1/system/limits", {"limits": ["rpm:5"]}),
        "metrics": client.get("/metrics"),
    }
    assert {what for what, answer in answers.items() if answer.status < 300} == permitted
    assert {answer.status for answer in answers.values()} <= {200, 201, 403}


def test_a_token_is_for_its_namespaces(guarded, url):
    with SyncRepository.open("default", url=url) as repository:
        repository.register_namespace("other")
    client = guarded.client("secret-gateway")
    assert client.post("/v1/leases?namespace=other", ACQUIRE).status == 403
    assert client.post("/v1/leases?namespace=default", ACQUIRE).status == 201


def test_namespaces_are_apart(serve, limiter, url):
    limiter.repository.register_namespace("other")
    client = serve().client()
    limits = {"limits": ["tpd:10/day"]}
    assert client.ask("PUT", "/v1/resources/gpt-4/limits?namespace=other", limits).status == 200
    body = {**ACQUIRE, "amounts": {"tpd": 10}}
    assert client.post("/v1/leases?namespace=other", body).status == 201
    assert client.post("/v1/leases?namespace=other", body).status == 429
    assert client.post("/v1/leases", body).status == 201
    assert client.post("/v1/leases?namespace=missing", body).status == 404


def test_a_lease_of_another_namespace_is_not_found(serve, limiter, tmp_path, tokens):
    limiter.repository.register_namespace("other")
    digest = hashlib.sha256(b"secret-other").hexdigest()
    with tokens.open("a", encoding="utf-8") as file:
        file.write(f"  - {{name: o, sha256: {digest}, role: acquire, namespaces: [other]}}\n")
    service = serve(no_auth=False, tokens=tokens)
    lease = service.client("secret-gateway").lease({"tpd": 1})
    assert (
        service.client("secret-other").delete(f"/v1/leases/{lease}?namespace=other").status == 404
    )
    assert service.client("secret-gateway").delete(f"/v1/leases/{lease}").status == 204


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_a_page_under_another_name_cannot_call_it(serve, host):
    service = serve()
    answer = service.client().post("/v1/leases", ACQUIRE, Host=host)
    assert answer.status == 400
    assert service.client().get("/healthz", Host=f"localhost:{service.port}").status == 200


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({"port": 80}, "localhost"),
        ({"port": 80}, "[::1]"),
        ({"port": 443, "certificate": Path("x.pem")}, "127.0.0.1"),
    ],
)
def test_clients_leave_out_the_port_of_the_scheme(options, host):
    settings = ServiceSettings(no_auth=True, **options)
    assert {host, f"{host}:{settings.port}"} <= settings.hosts
    assert host not in replace(settings, port=8080).hosts


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_that_a_page_can_send_is_refused(client, limiter, kind):
    assert client.post("/v1/leases", ACQUIRE, Content_Type=kind).status == 415
    assert limiter.available("e", "gpt-4")["tpd"] == 10_000
    assert client.metric("refused_total", reason="content_type") == 1


def test_a_preflight_of_a_page_is_not_answered_with_consent(client):
    answer = client.ask("OPTIONS", "/v1/leases", Origin="https://evil.example")
    assert answer.status == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_a_changed_file_of_tokens_is_in_force_within_moments(guarded, tokens):
    client = guarded.client("secret-new")
    assert client.post("/v1/leases", ACQUIRE).status == 401
    digest = hashlib.sha256(b"secret-new").hexdigest()
    tokens.write_text(
        f"tokens: [{{name: new, sha256: {digest}, role: acquire, namespaces: ['*']}}]\n",
        encoding="utf-8",
    )
    wait_until(lambda: client.post("/v1/leases", ACQUIRE).status == 201)
    assert guarded.client("secret-gateway").post("/v1/leases", ACQUIRE).status == 401
    tokens.write_text("tokens: [{]\n", encoding="utf-8")
    time.sleep(1.2)
    assert client.post("/v1/leases", ACQUIRE).status == 201


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "empty"),
        ("tokens:\n  - {name: a}\n", 2, "'sha256' is missing"),
        ("tokens:\n  - name: a\n    sha256: abc\n", 3, "64 hexadecimal digits"),
        ("tokens:\n - {name: a, sha256: %s, role: king, namespaces: [x]}\n", 2, "role must be"),
        ("tokens:\n - {name: a, sha256: %s, role: read, namespaces: [' ']}\n", 2, "' '"),
        ("tokens:\n - {name: a, sha256: %s, role: read}\n", 2, "'namespaces' is missing"),
        ("tokens: []\nsecrets: []\n", 2, "'secrets' is unknown"),
        ("tokens: {\n", 2, "expected"),
        ("tokens: 7\n", 1, "must be a list"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(tmp_path, text, line, reason):
    path = tmp_path / "tokens.yaml"
    path.write_text(text.replace("%s", "a" * 64), encoding="utf-8")
    with pytest.raises(FileError) as caught:
        read_access(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"no_auth": False}, "tokens"),
        ({"host": "0.0.0.0"}, "no_auth"),
        ({"host": "0.0.0.0", "no_auth": False, "tokens": "t"}, "host"),
        ({"tokens": "t"}, "no_auth"),
        ({"client_ca": "ca", "no_auth": False}, "client_ca"),
        ({"rules": "r"}, "rules"),
        ({"workers": 2, "url": "memory://"}, "workers"),
        ({"workers": 2, "dashboard": True}, "workers"),
        ({"advertise": "10.0.0.5:8080"}, "advertise"),
        ({"key": "k"}, "key"),
    ],
)
def test_settings_that_leave_the_service_open_are_refused(options, field):
    with pytest.raises(ValidationError) as caught:
        service_settings(**options).check()
    assert caught.value.field == field


# --- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities, a certificate of the server, and those of clients."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "stranger-ca"):
        openssl(
            "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem",
            "-days", "2", "-subj", f"/CN={name}",
        )  # fmt: skip
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="utf-8")
    for name, authority in SIGNED_BY.items():
        openssl(
            "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
        )
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem",
            "-CAkey", f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem",
            "-days", "2", "-extfile", "san",
        )  # fmt: skip
    return folder


def context(folder, name=None):
    found = ssl.create_default_context(cafile=folder / "ca.pem")
    if name is not None:
        found.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return found


def tls(folder):
    return {"certificate": folder / "server.pem", "key": folder / "server.key"}


def ask_envoy(service, folder, name=None, token=None):
    """Ask over gRPC with the certificate of a client, or without one, as Envoy does."""
    pair = [None, None]
    if name is not None:
        pair = [(folder / f"{name}.{end}").read_bytes() for end in ("key", "pem")]
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    request = rls_pb2.RateLimitRequest(domain="gateway", descriptors=[DESCRIPTOR])
    metadata = None if token is None else [("authorization", f"Bearer {token}")]
    address = f"127.0.0.1:{service.settings.grpc_port}"
    with grpc.secure_channel(address, credentials) as channel:
        stub = rls_pb2_grpc.RateLimitServiceStub(channel)
        return stub.ShouldRateLimit(request, timeout=30, metadata=metadata)


def test_tokens_work_over_tls(serve, tokens, certificates):
    service = serve(no_auth=False, tokens=tokens, **tls(certificates))
    client = service.client("secret-gateway", context=context(certificates))
    assert client.post("/v1/leases", ACQUIRE).status == 201


def test_a_certificate_of_the_authority_may_acquire(serve, certificates):
    service = serve(no_auth=False, client_ca=certificates / "ca.pem", **tls(certificates))
    client = service.client(context=context(certificates, "gateway"))
    assert client.post("/v1/leases", ACQUIRE).status == 201
    assert client.get("/v1/entities").status == 403
    for name in (None, "mallory"):
        stranger = service.client(context=context(certificates, name))
        with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
            stranger.post("/v1/leases", ACQUIRE)


def test_over_grpc_a_certificate_of_the_authority_may_acquire(serve, limiter, certificates):
    service = serve(
        no_auth=False, grpc_port=0, client_ca=certificates / "ca.pem", **tls(certificates)
    )
    assert ask_envoy(service, certificates, "gateway").overall_code == ADMITTED
    assert limiter.available("e", "gpt-4")["rpd"] == 99
    for name in (None, "mallory"):
        with pytest.raises(grpc.RpcError) as caught:
            ask_envoy(service, certificates, name)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE  # the handshake fails
    assert limiter.available("e", "gpt-4")["rpd"] == 99


def test_over_grpc_a_file_says_what_a_certificate_may_do(serve, limiter, certificates, tokens):
    with tokens.open("a", encoding="utf-8") as file:
        file.write(
            "certificates:\n"
            "  - {name: gw, common_name: gateway, role: acquire, namespaces: ['*']}\n"
            "  - {name: bystander, common_name: reader, role: read, namespaces: ['*']}\n"
        )
    service = serve(
        no_auth=False,
        grpc_port=0,
        tokens=tokens,
        client_ca=certificates / "ca.pem",
        **tls(certificates),
    )
    assert ask_envoy(service, certificates, "gateway").overall_code == ADMITTED
    for name, code in [
        ("reader", grpc.StatusCode.PERMISSION_DENIED),
        ("server", grpc.StatusCode.UNAUTHENTICATED),  # the file does not name it
        (None, grpc.StatusCode.UNAVAILABLE),
        ("mallory", grpc.StatusCode.UNAVAILABLE),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            ask_envoy(service, certificates, name)
        assert caught.value.code() is code
    by_token = ask_envoy(service, certificates, "server", token="secret-gateway")
    assert by_token.overall_code == ADMITTED
    with pytest.raises(grpc.RpcError) as caught:  # a token does not replace the certificate
        ask_envoy(service, certificates, token="secret-gateway")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert limiter.available("e", "gpt-4")["rpd"] == 98


def test_a_file_says_what_a_certificate_may_do(serve, certificates, tokens):
    with tokens.open("a", encoding="utf-8") as file:
        file.write(
            "certificates:\n  - {name: gw, common_name: gateway, role: manage, namespaces: ['*']}\n"
        )
    service = serve(
        no_auth=False, tokens=tokens, client_ca=certificates / "ca.pem", **tls(certificates)
    )
    by_certificate = service.client(context=context(certificates, "gateway"))
    assert by_certificate.get("/v1/entities").status == 200
    by_token = service.client("secret-gateway", context=context(certificates))
    assert by_token.post("/v1/leases", ACQUIRE).status == 201
    unknown = service.client(context=context(certificates, "server"))
    assert unknown.post("/v1/leases", ACQUIRE).status == 401


def wait_until(holds):
    give_up_at = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up_at, "it does not happen"
        time.sleep(0.1)

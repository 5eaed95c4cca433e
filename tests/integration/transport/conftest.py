import shutil
import subprocess

import pytest

from tests.integration.transport.trees import (
    AsyncClient,
    AsyncSdkTransport,
    AsyncTransport,
    SyncClient,
    SyncSdkTransport,
    SyncTransport,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of the machine's AWS set-up."""
    for name in (
        "ALL_PROXY",
        "AWS_CA_BUNDLE",
        "AWS_DEFAULT_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_DYNAMODB",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_SESSION_TOKEN",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTTESTTESTTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


LEAN = {"aio": AsyncTransport, "threads": SyncTransport}
SDK = {"sdk-aio": AsyncSdkTransport, "sdk-threads": SyncSdkTransport}


@pytest.fixture(params=(LEAN | SDK).values(), ids=(LEAN | SDK).keys())
def transport(request):
    """One of all, called as if it were sync."""
    transport = request.param()
    yield transport
    transport.close()


@pytest.fixture(params=LEAN.values(), ids=LEAN.keys())
def lean_transport(request):
    """One of our own two, called as if it were sync."""
    transport = request.param()
    yield transport
    transport.close()


@pytest.fixture(params=["async", "sync", "async-sdk", "sync-sdk"])
def open_client(request):
    """Opens clients of one tree over one transport, called as if they were sync."""
    clients = []
    tree, _, transport = request.param.partition("-")
    kind = {"async": AsyncClient, "sync": SyncClient}[tree]

    def open_client(url, table="some-table-name", **options):
        options = {"transport": transport or "auto", **options}
        clients.append(kind(table, endpoint_url=url, **options))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A file with a key and a certificate for localhost and the loopback addresses."""
    if shutil.which("openssl") is None:
        pytest.fail("openssl is needed to make a certificate for the tests of TLS; install it")
    folder = tmp_path_factory.mktemp("tls")
    key, crt, both = (folder / name for name in ("key.pem", "crt.pem", "both.pem"))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-keyout", key, "-out", crt),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + crt.read_bytes())
    return both

import shutil
import subprocess

import pytest

from tests.integration.transport.trees import (
    AsyncClient,
    AsyncTransport,
    SyncClient,
    SyncTransport,
)
from tests.support.aws_rules import watch


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


TRANSPORTS = {"aio": AsyncTransport, "threads": SyncTransport}
CLIENTS = {"async": AsyncClient, "sync": SyncClient}


@pytest.fixture(params=TRANSPORTS.values(), ids=TRANSPORTS.keys())
def transport(request):
    """One of the two, called as if it were sync."""
    transport = request.param()
    yield transport
    transport.close()


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS.keys())
def open_client(request):
    """Opens clients of one tree, called as if they were sync."""
    clients = []

    def open_client(url, table="some-table-name", **options):
        clients.append(request.param(table, endpoint_url=url, **options))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A file with a key and a certificate for localhost, loopback addresses and dynamodb.test."""
    if shutil.which("openssl") is None:
        pytest.fail("openssl is needed to make a certificate for the tests of TLS; install it")
    folder = tmp_path_factory.mktemp("tls")
    key, crt, both = (folder / name for name in ("key.pem", "crt.pem", "both.pem"))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-keyout", key, "-out", crt),
            *(
                "-addext",
                "subjectAltName=DNS:localhost,DNS:dynamodb.test,IP:127.0.0.1,IP:::1,IP:0.0.0.0",
            ),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + crt.read_bytes())
    return both


@pytest.fixture(autouse=True)
def _requests_may_break_the_rules_of_dynamodb():
    """Tests of the wire send bodies that mean nothing to servers that only pretend."""
    with watch.unwatched():
        yield

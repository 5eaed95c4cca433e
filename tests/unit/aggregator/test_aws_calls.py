"""The calls of the aggregator, with a server that checks their signatures by botocore's."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.endpoint_rules import rules_of
from zae_limiter.store_errors import NotSent
from zae_limiter.transport.errors import Denied, Refused
from zae_limiter_aggregator.handler import AwsCalls
from zae_limiter_ops.transport.partitions import dynamodb_endpoint, s3_host, url_suffix
from zae_limiter_ops.transport.s3 import ObjectStore

FAULT = json.dumps({"__type": "x#InternalServerError"}).encode()
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret/+"}


class CheckedServer(ThreadingHTTPServer):
    """DynamoDB and S3 in one: checks signatures, keeps what it gets, answers from a list."""

    daemon_threads = True

    def __init__(self, token):
        super().__init__(("127.0.0.1", 0), _Checked)
        self.token = token
        self.requests, self.answers = [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Checked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self._answer("dynamodb", SigV4Auth, b"{}")

    def do_PUT(self):
        self._answer("s3", S3SigV4Auth, b"")

    def _answer(self, service, auth, good):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        status, content = 403, b"<Code>SignatureDoesNotMatch</Code>"
        if self.headers["authorization"] == self._expected(service, auth, body):
            status, content = self.server.answers.pop(0) if self.server.answers else (200, good)
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _expected(self, service, auth, body):
        given = self.headers["authorization"]
        signed = given.split("SignedHeaders=")[1].split(",")[0].split(";")
        headers = {name: self.headers[name] for name in signed if name != "x-amz-security-token"}
        if service == "s3":
            assert headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
        request = AWSRequest(self.command, self.server.url + self.path, headers=headers, data=body)
        request.context.update(timestamp=self.headers["x-amz-date"], client_config=None)
        credentials = Credentials(
            KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"], self.server.token
        )
        oracle = auth(credentials, service, "eu-west-1")
        oracle._modify_request_before_signing(request)  # noqa: SLF001 - signs for the given moment
        text = oracle.string_to_sign(request, oracle.canonical_request(request))
        oracle._inject_signature_to_request(request, oracle.signature(text, request))  # noqa: SLF001
        return request.headers["Authorization"]

    def log_message(self, *arguments):
        pass


@pytest.fixture(params=[None, "a/token+="])
def server(request):
    with CheckedServer(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def calls(server, monkeypatch):
    environment = {
        **KEYS,
        "AWS_SESSION_TOKEN": server.token or "",  # Lambda's emulators set an empty one
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": server.url,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    calls = AwsCalls("my-table")
    yield calls
    calls.close()


def test_calls_of_dynamodb_are_signed(server, calls):
    assert calls.call("UpdateItem", {"Key": {"PK": {"S": "ü"}}}) == {}
    assert calls.call("UpdateItem", '{"TableName":"other"}') == {}
    (_, headers, body), (_, _, text) = server.requests
    assert json.loads(body) == {"TableName": "my-table", "Key": {"PK": {"S": "ü"}}}
    assert text == b'{"TableName":"other"}'
    assert headers["X-Amz-Target"] == "DynamoDB_20120810.UpdateItem"


def test_objects_are_signed(server, calls):
    calls.put_object("bucket", "audit/year=2026/a b.gz", b"content")
    ((path, headers, body),) = server.requests
    assert (path, body) == ("/bucket/audit/year%3D2026/a%20b.gz", b"content")
    assert headers["content-type"] == "application/gzip"


def test_what_may_succeed_later_is_repeated(server, calls):
    server.answers = [(503, b"<Code>SlowDown</Code>"), (500, b"<Code>InternalError</Code>")]
    calls.put_object("bucket", "name", b"content")
    assert len(server.requests) == 3
    server.answers = [(500, FAULT)]
    assert calls.call("GetItem", {}) == {}
    server.answers = [(500, FAULT)]
    assert calls.call("UpdateItem", {}) == {}


def test_what_is_refused_is_not_repeated(server, calls):
    server.answers = [(404, b"<Code>NoSuchBucket</Code>")]
    with pytest.raises(Refused, match="NoSuchBucket"):
        calls.put_object("bucket", "name", b"content")
    server.answers = [(403, b"<Code>AccessDenied</Code>")]
    with pytest.raises(Denied):
        calls.put_object("bucket", "name", b"content")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("region", "suffix", "domain"),
    [
        ("eu-west-1", "", "amazonaws.com"),
        ("cn-north-1", "", "amazonaws.com.cn"),
        ("eusc-de-east-1", "amazonaws.eu", "amazonaws.eu"),
    ],
)
def test_the_domain_is_the_one_of_the_partition(monkeypatch, region, suffix, domain):
    monkeypatch.setenv("URL_SUFFIX", suffix)
    assert url_suffix(region) == domain


def test_a_function_calls_the_endpoint_of_its_partition(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eusc-de-east-1")
    monkeypatch.setenv("URL_SUFFIX", "amazonaws.eu")
    assert dynamodb_endpoint() == "https://dynamodb.eusc-de-east-1.amazonaws.eu"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert dynamodb_endpoint() is None


@pytest.mark.parametrize("use_fips", ["true", "false"])
@pytest.mark.parametrize("region", ["us-east-1", "ca-central-1", "us-gov-west-1", "us-gov-east-1"])
def test_a_function_calls_the_hosts_that_botocore_names(monkeypatch, region, use_fips):
    monkeypatch.setenv("AWS_REGION", region)
    monkeypatch.setenv("URL_SUFFIX", "amazonaws.com")
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", use_fips)
    assert dynamodb_endpoint() == rules_of("dynamodb", region, use_fips == "true")
    found = f"https://{s3_host('archive', region)}"
    assert found == rules_of("s3", region, use_fips == "true", Bucket="archive")


def test_an_archive_that_cannot_be_reached_reminds_of_the_vpc(monkeypatch):
    for name, value in {**KEYS, "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    store = ObjectStore()
    with pytest.raises(NotSent, match="a function in a VPC reaches S3 by a gateway endpoint"):
        store.put("archive", "name", b"content")
    store.close()

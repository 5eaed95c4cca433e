"""A control plane that cannot be reached is said so in one line, and soon."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from zae_limiter.exceptions import InfrastructureError
from zae_limiter_ops.transport.control import Control

SOON_S = 12.0  # 5 are promised, on a machine with nothing else to do; six attempts took 21


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("HTTPS_PROXY", "https_proxy", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def test_a_mistyped_region_is_named_with_the_one_that_was_meant():
    control = Control("us-esat-1")
    began = time.monotonic()
    with pytest.raises(InfrastructureError) as caught:
        control.call("cloudformation", "describe_stacks")
    assert time.monotonic() - began < SOON_S
    line = str(caught.value)
    assert "cloudformation has no host in region us-esat-1" in line
    assert "did you mean us-east-1 or us-west-1?" in line
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="did you mean us-east-1"):
        control.call("lambda", "list_functions")  # a region without one host has no other
    assert time.monotonic() - began < 1
    control.close()


def test_an_endpoint_that_refuses_connections_is_named(unused_tcp_port):
    control = Control("us-east-1", f"http://127.0.0.1:{unused_tcp_port}")
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match=f"at http://127.0.0.1:{unused_tcp_port}"):
        control.call("cloudformation", "describe_stacks")
    assert time.monotonic() - began < SOON_S
    control.close()


class CutOff(ThreadingHTTPServer):
    """Begins an answer, and hangs up before its end."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _CutOff)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _CutOff(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "100")
        self.end_headers()
        self.wfile.write(b'{"changes": [')

    do_GET = do_POST  # noqa: N815 - as http.server asks for it

    def log_message(self, *arguments):
        pass


@pytest.fixture
def cut_off():
    with CutOff() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_answer_that_is_cut_off_is_our_error(cut_off):
    """botocore reads the answer of a function and the content of an object after its call."""
    control = Control("us-east-1", cut_off.url)
    with pytest.raises(InfrastructureError, match=r"^lambda cannot be reached"):
        control.invoke("my-function", {})
    with pytest.raises(InfrastructureError, match=r"^s3 cannot be reached"):
        control.read_object("bucket", "key")
    control.close()

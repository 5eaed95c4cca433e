"""A portal that answers in place of the provisioner function."""

import http.server
import threading
from contextlib import contextmanager

import pytest

from zae_limiter.exceptions import InfrastructureError
from zae_limiter_ops._sync.infra.remote_provisioner import RemoteProvisioner
from zae_limiter_ops.manifest import LimitsManifest


@contextmanager
def portal(body):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "body",
    [
        b'{"message": "please log in"}',
        b"<html>",
        b"[]",
        b'{"error": "x"}',
        b'{"error": {"problems": [5]}}',
        b'{"changes": 1}',
        b"[" * 20_000,
    ],
)
@pytest.mark.parametrize("action", ["plan", "apply", "diff"])
def test_an_answer_of_another_form_is_an_error_that_says_so(monkeypatch, action, body):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    with portal(body) as url:
        remote = RemoteProvisioner("stack", "us-east-1", url)
        try:
            with pytest.raises(InfrastructureError, match="stack-limits-provisioner"):
                getattr(remote, action)(LimitsManifest())
        finally:
            remote.close()

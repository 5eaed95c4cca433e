"""An endpoint that logs which service and region each request is for, and passes it on."""

from __future__ import annotations

import re
import ssl
import subprocess
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_HOP_HEADERS = ("connection", "transfer-encoding", "content-length", "proxy-connection")


class Seen(NamedTuple):
    """A request: the host that it was sent to, and the service and region that it is signed for."""

    host: str
    service: str
    region: str


class LoggingEndpoint(ThreadingHTTPServer):
    """Passes requests on to ``upstream``, as an endpoint or as a proxy that looks inside of TLS."""

    daemon_threads = True

    def __init__(self, upstream: str, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.seen: list[Seen] = []
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> LoggingEndpoint:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoggingEndpoint

    def do_CONNECT(self) -> None:
        assert self.server.tls is not None, "an endpoint is no proxy"
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False  # the requests inside of the tunnel follow

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # after a tunnel it is not the socket that the server closes

    def _pass_on(self) -> None:
        scope = _SCOPE.search(self.headers.get("authorization", ""))
        region, service = scope.groups() if scope else ("", "unsigned")
        self.server.seen.append(Seen(self.headers["host"], service, region))
        body = self._body()
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in (*_HOP_HEADERS, "expect")
        }
        upstream = HTTPConnection(self.server.upstream, timeout=120)
        try:
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def __getattr__(self, name: str) -> Any:
        """Treat all methods of HTTP alike."""
        if name.startswith("do_"):
            return self._pass_on
        raise AttributeError(name)

    def log_message(self, *arguments: object) -> None:
        pass


def make_certificate(folder: Path, *regions: str) -> Path:
    """Return a file with a key and a certificate for the hosts of AWS in some regions."""
    key, crt, both = (folder / name for name in ("key.pem", "crt.pem", "both.pem"))
    hosts = ["*.amazonaws.com"]
    for region in regions:
        hosts += [f"*.{service}{region}.amazonaws.com" for service in ("", "s3.", "ecr.")]
    names = ",".join(f"DNS:{host}" for host in hosts)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=aws", "-keyout", key, "-out", crt),
            *("-addext", f"subjectAltName={names}"),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + crt.read_bytes())
    return both

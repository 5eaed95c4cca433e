"""A plain proxy that changes requests to another server, or answers some of them itself."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

HOST = "127.0.0.1"
_KEPT_HEADERS = ("content-type", "x-amzn-requestid", "date")


class Answer(NamedTuple):
    """The answer to one call."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


Ask = Callable[[str, bytes], Answer]  # sends a call with its body to the server


class Bridge:
    """Forwards every call as it is. It ends with the block."""

    def __init__(self, endpoint: str) -> None:
        handler = type("Handler", (_Handler,), {"bridge": self, "upstream": urlsplit(endpoint)})
        self._server = _Server((HOST, 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def answer(self, operation: str, body: bytes, ask: Ask) -> Answer:
        """Return the answer to a call."""
        return ask(operation, body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class WithoutExpiry(Bridge):
    """Lets no item expire: the clocks of tests are in the past, and AWS deletes days later."""

    def answer(self, operation: str, body: bytes, ask: Ask) -> Answer:
        if operation != "UpdateTimeToLive":
            return ask(operation, body)
        specified = {"TimeToLiveSpecification": json.loads(body)["TimeToLiveSpecification"]}
        headers = [("content-type", "application/x-amz-json-1.0"), ("x-amzn-requestid", "0")]
        return Answer(200, headers, json.dumps(specified).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # tests open many connections at once; five is the default

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that have gone, as tests of outages let them."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one connection to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bridge: Bridge
    upstream: SplitResult

    def setup(self) -> None:
        super().setup()
        self._connection = HTTPConnection(self.upstream.hostname or HOST, self.upstream.port)

    def finish(self) -> None:
        self._connection.close()
        super().finish()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        operation = self.headers.get("x-amz-target", ".").rpartition(".")[2]
        answer = self.bridge.answer(operation, body, self._ask)
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() in _KEPT_HEADERS:
                self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _ask(self, operation: str, body: bytes) -> Answer:
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers |= {
            "x-amz-target": f"DynamoDB_20120810.{operation}",
            "content-length": str(len(body)),
            "host": self.upstream.netloc,
        }
        self._connection.request("POST", "/", body, headers)
        response = self._connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class
        """Say nothing."""

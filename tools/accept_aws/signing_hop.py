"""A local HTTP server that signs the requests of a suite again, and passes them to DynamoDB.

The suites have credentials and an endpoint of their own. They send their requests here, and keep
both. Two things differ from the endpoint behind the hop:

- The TTL of the suites' tables stays off. The clocks of the suites stand at a fixed date of the
  past, so AWS might delete an item while its test runs.
- A query of an index waits until the last write to its table is ``settle_s`` old. An index of AWS
  follows its table within a fraction of a second, and the suites read it right after a write.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

HOST = "127.0.0.1"
READ_S = 30.0
IDLE_S = 5.0  # then a connection may be closed by the other side, so a new one is opened
READS = frozenset({"BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan", "TransactGetItems"})
# Headers of a request that belong to the connection or to the old signature.
_REPLACED = (
    *("accept-encoding", "authorization", "connection", "host"),
    *("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"),
)
_PASSED_BACK = ("content-type", "date", "x-amz-crc32", "x-amzn-requestid")

Sign = Callable[[str, dict[str, str], bytes], dict[str, str]]


class SigningHop:
    """Passes every request on with a new signature. It ends with the block.

    ``tables`` is a file that gets the name of each created table, one per line, before the table is
    created: a run that was killed can still delete them.
    """

    def __init__(
        self, endpoint: str, region: str, credentials: Any, tables: Path, *, settle_s: float
    ) -> None:
        self.endpoint = endpoint
        self.sign = signer(region, credentials)
        self._tables = tables
        self._settle_s = settle_s
        self._lock = threading.Lock()
        self._last_writes: dict[str, float] = {}  # by table
        handler = type("Handler", (_Handler,), {"hop": self})
        self._server = _Server((HOST, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def own_answer(self, operation: str, body: bytes) -> bytes | None:
        """Return the hop's own answer to a request; None if DynamoDB answers."""
        if operation != "UpdateTimeToLive":
            return None
        specification = json.loads(body)["TimeToLiveSpecification"]
        return json.dumps({"TimeToLiveSpecification": specification}).encode()

    def before(self, operation: str, body: bytes) -> None:
        """Note a table that is created; let a query of an index wait for the last write."""
        request = json.loads(body)
        if operation == "CreateTable":
            with self._lock, self._tables.open("a") as file:
                file.write(request["TableName"] + "\n")
        elif operation == "Query" and "IndexName" in request:
            settled_at = self._last_writes.get(request["TableName"], -inf) + self._settle_s
            time.sleep(max(0.0, settled_at - time.monotonic()))

    def after(self, operation: str, body: bytes) -> None:
        """Note the time of a write."""
        if operation not in READS:
            for table in tables_of(json.loads(body)):
                self._last_writes[table] = time.monotonic()


def tables_of(request: dict[str, Any]) -> set[str]:
    """Return the names of the tables that a request is about."""
    if "TransactItems" in request:
        actions = [action for each in request["TransactItems"] for action in each.values()]
        return {action["TableName"] for action in actions}
    if "RequestItems" in request:
        return set(request["RequestItems"])
    return {request["TableName"]} if "TableName" in request else set()


def signer(region: str, credentials: Any) -> Sign:
    """Return a function that signs a request to DynamoDB and returns its headers."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    def sign(url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        request = AWSRequest("POST", url, headers=headers, data=body)
        # Frozen for each request: credentials of a role are renewed while the suites run.
        SigV4Auth(credentials.get_frozen_credentials(), "dynamodb", region).add_auth(request)
        return dict(request.headers.items())

    return sign


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the suites open many connections at once; five is the default

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that have gone, as tests of outages and timeouts let them."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one connection to DynamoDB."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hop: SigningHop
    _upstream: HTTPConnection | None = None
    _used_at = 0.0

    def finish(self) -> None:
        self._hang_up()
        super().finish()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        operation = self.headers.get("x-amz-target", ".").rpartition(".")[2]
        own = self.hop.own_answer(operation, body)
        if own is not None:
            headers = {"content-type": "application/x-amz-json-1.0", "x-amzn-requestid": "hop"}
            self._answer(200, headers, own)
            return
        self.hop.before(operation, body)
        try:
            response = self._ask(body)
            answer = response.read()
        except (OSError, HTTPException):
            # The client sees a broken connection, as it would without the hop.
            self._hang_up()
            self.close_connection = True
            return
        self.hop.after(operation, body)
        headers = {
            name: value for name, value in response.getheaders() if name.lower() in _PASSED_BACK
        }
        self._answer(response.status, headers, answer)

    def _ask(self, body: bytes) -> HTTPResponse:
        kept = {
            name: value for name, value in self.headers.items() if name.lower() not in _REPLACED
        }
        headers = self.hop.sign(self.hop.endpoint + "/", kept, body)
        if time.monotonic() - self._used_at > IDLE_S:
            self._hang_up()
        if self._upstream is None:
            parts = urlsplit(self.hop.endpoint)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            self._upstream = kind(parts.netloc, timeout=READ_S)
        self._used_at = time.monotonic()
        self._upstream.request("POST", "/", body, headers)
        return self._upstream.getresponse()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class
        """Say nothing."""

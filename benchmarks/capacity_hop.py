"""A hop between our client and DynamoDB that asks for the units of each call.

The client does not ask for consumed capacity, since every answer would be longer. The hop adds the
question and signs the request again, with the credentials that botocore finds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})
WRITES = frozenset({"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"})
REFUSED = "ConditionalCheckFailedException"  # billed like a write, and says no units


class Units(NamedTuple):
    """The units of some calls, indexes included."""

    calls: int = 0
    wcu: float = 0.0
    rcu: float = 0.0

    def plus(self, other: Units) -> Units:
        return Units(self.calls + other.calls, self.wcu + other.wcu, self.rcu + other.rcu)

    def each_of(self, count: int) -> Units:
        return Units(round(self.calls / count), self.wcu / count, self.rcu / count)


class CapacityHop:
    """Counts the calls that pass; ``url`` opens a repository."""

    def __init__(self, session: Any, region: str, endpoint: str) -> None:
        self._session, self._region, self._endpoint = session, region, endpoint.rstrip("/") + "/"
        self._http = URLLib3Session()
        self._lock = threading.Lock()
        self._seen = Units()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[CapacityHop]:
        hop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, answer = hop.passed_on(self.headers["x-amz-target"], body)
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing: the tables are the output."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def taken(self) -> Units:
        """Return the calls since the last time."""
        with self._lock:
            seen, self._seen = self._seen, Units()
        return seen

    def passed_on(self, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request on, count it, and return status, headers and body of the answer."""
        operation = target.rpartition(".")[2]
        if operation in READS | WRITES:
            body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "TOTAL"}).encode()
        headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": target}
        request = AWSRequest("POST", self._endpoint, headers=headers, data=body)
        SigV4Auth(self._session.get_credentials(), "dynamodb", self._region).add_auth(request)
        answer = self._http.send(request.prepare())
        with self._lock:
            self._seen = self._seen.plus(_units(operation, json.loads(answer.content or b"{}")))
        kept = ("content-type", "x-amz-crc32", "x-amzn-requestid", "date")
        return (
            answer.status_code,
            {name: answer.headers[name] for name in kept if name in answer.headers},
            answer.content,
        )


def _units(operation: str, answer: dict[str, Any]) -> Units:
    consumed = answer.get("ConsumedCapacity", [])
    tables = consumed if isinstance(consumed, list) else [consumed]
    units = sum(float(table["CapacityUnits"]) for table in tables)
    if str(answer.get("__type", "")).endswith(REFUSED):
        units = 1.0
    return Units(1, 0.0, units) if operation in READS else Units(1, units, 0.0)

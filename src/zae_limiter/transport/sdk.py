"""botocore's HTTP stack, watched: when does a byte leave, and how long may it take."""

from __future__ import annotations

import socket
import threading
import time
from http.client import HTTPResponse
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSPreparedRequest,
    AWSResponse,
)
from botocore.httpsession import URLLib3Session
from urllib3.util import Timeout
from urllib3.util.response import assert_header_parsing

from zae_limiter.exceptions import PermissionDenied
from zae_limiter.transport.choosing import Route
from zae_limiter.transport.sdk_flight import Flight, GivenUp, refused_by_proxy
from zae_limiter.transport.wire import IDLE_S, RawAnswer, Request

_BODYLESS = (204, 304)


class _Here(threading.local):
    """The flight that a thread carries: botocore passes nothing on to its connections."""

    flight: Flight


_here = _Here()


class Sdk:
    """Proxies, TLS, pooling and HTTP are botocore's; it neither retries nor signs here."""

    def __init__(self, route: Route, connections: int) -> None:
        self._route = route
        proxies = {scheme: route.proxy for scheme in ("http", "https") if route.proxy}
        self._session = URLLib3Session(
            verify=route.verify,
            proxies=proxies,
            max_pool_connections=connections,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            proxies_config=dict(route.proxy_settings),
        )
        pools = {"http": _HttpPool, "https": _HttpsPool}
        self._session._pool_classes_by_scheme.update(pools)  # noqa: SLF001 - no other way in

    def exchange(self, flight: Flight) -> RawAnswer:
        """Raises what botocore and urllib3 raise."""
        _here.flight = flight
        try:
            answer = _whole(self._session.send(_prepared(flight.request)))
        finally:
            del _here.flight
        if self._route.via is not None:
            _check_proxy(answer, self._route.via, flight.request.endpoint.host)
        return answer

    def close(self) -> None:
        """Drop the connections that nobody uses."""
        self._session.close()


def _prepared(request: Request) -> AWSPreparedRequest:
    """The same request in botocore's terms: what was signed stays as it is."""
    head, _, body = request.message.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method = lines[0].partition(" ")[0]
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return AWSPreparedRequest(method, request.endpoint.url, headers, body, stream_output=True)


def _whole(response: AWSResponse) -> RawAnswer:
    """botocore does not mind when an answer breaks off."""
    headers = {str(name).lower(): value for name, value in response.headers.items()}
    expected = None
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        expected = headers.get("content-length")
    if expected is not None and not expected.isdigit():
        response.raw.close()
        raise ConnectionError("the length of the answer is not a number")
    body = response.content
    if not _is_cut(headers, expected, body) or response.status_code in _BODYLESS:
        return RawAnswer(response.status_code, headers, body)
    raise ConnectionError("the connection was closed before the answer was whole")


def _is_cut(headers: dict[str, str], expected: str | None, body: bytes) -> bool:
    """Without a length an answer ends with the connection, and so does half a head."""
    if expected is not None:
        return len(body) != int(expected)
    return not body and "transfer-encoding" not in headers


def _check_proxy(answer: RawAnswer, via: str, host: str) -> None:
    """A refusal of the proxy's own, which comes like an answer if there is no tunnel."""
    if answer.status == 407:
        raise refused_by_proxy(via)
    if answer.status == 403 and not answer.body.lstrip().startswith(b"{"):
        raise PermissionDenied(
            f"the proxy {via} refused to pass the request on to {host} (403); ask for access, "
            f"or set NO_PROXY={host} to go without it"
        )


class _Response(HTTPResponse):
    """Stricter than its parent about heads, and about what comes after the answer."""

    def begin(self) -> None:
        super().begin()
        assert_header_parsing(self.msg)

    def _close_conn(self) -> None:
        flight = _here.flight  # a proxy's consent to a tunnel is a response, too
        if flight.has_left and self.fp is not None and _has_more(self.fp):
            flight.has_surplus = True
        super()._close_conn()  # type: ignore[misc]


def _has_more(stream: Any) -> bool:
    """Whether there is something to read now; what was read ahead would be lost."""
    try:
        stream.raw._sock.settimeout(0)  # noqa: SLF001 - peek would wait
        return bool(stream.peek(1))
    except (OSError, ValueError):  # nothing yet, or the connection is closed
        return False


class _Connection:
    """Connects first, then reports that the request leaves."""

    response_class = _Response
    sock: Any
    timeout: Any
    used_at = 0.0

    def request(self, *args: Any, **options: Any) -> Any:
        flight = _here.flight
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        flight.leave(self)
        self.timeout = flight.left_s()
        self.sock.settimeout(self.timeout)
        return super().request(*args, **options)  # type: ignore[misc]


class _Pool:
    """Takes its times from the flight; a connection that was cut or is old is not used again."""

    def urlopen(self, *args: Any, **options: Any) -> Any:
        flight = _here.flight
        if not flight.is_awaited:
            raise GivenUp
        options["timeout"] = Timeout(connect=flight.connect_left_s(), read=flight.left_s())
        return super().urlopen(*args, **options)  # type: ignore[misc]

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection = super()._get_conn(timeout)  # type: ignore[misc]
        if time.monotonic() - connection.used_at > IDLE_S:
            connection.close()
        return connection

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.used_at = time.monotonic()
            if not _here.flight.arrive():
                conn.close()
        super()._put_conn(conn)  # type: ignore[misc]


class _HttpConnection(_Connection, AWSHTTPConnection):  # type: ignore[misc]
    """Plain, to the server or to a proxy."""


class _HttpsConnection(_Connection, AWSHTTPSConnection):  # type: ignore[misc]
    """With TLS."""


class _HttpPool(_Pool, AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpConnection


class _HttpsPool(_Pool, AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpsConnection

"""The transport of the sync tree: a pool of plain connections that threads share."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from concurrent.futures import Future
from typing import TypeVar

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.transport.http1 import AnswerReader, Malformed, in_one_piece
from zae_limiter.transport.names import Address, Names
from zae_limiter.transport.sockets import Watch, new_socket, share_of
from zae_limiter.transport.tls import Trust
from zae_limiter.transport.wire import (
    IDLE_S,
    Endpoint,
    RawAnswer,
    Request,
    no_answer,
    no_connection,
)

T = TypeVar("T")

_PIECE = 65_536


class Http:
    """Sends requests over connections that are kept; the one used last is used first."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._closed = False
        self._names = Names()
        self._trust = Trust()
        self._lock = threading.RLock()  # a signal handler may send while its thread is in here
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The connections are the parent's: two processes on one would mix up their answers."""
        self._lock = threading.RLock()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def send(self, request: Request, timeout: float, connect_timeout: float) -> RawAnswer:
        """One exchange; raises NotSent or NoAnswer."""
        until = time.monotonic() + timeout
        connection = self._kept() or self._connected(request.endpoint, connect_timeout)
        try:
            answer = connection.exchange(request.message, until)
        except (OSError, Malformed) as error:
            connection.close()
            raise no_answer(request.endpoint, error) from error
        except BaseException:  # an interrupt in the middle: the answer may still come
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _kept(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable(time.monotonic()):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        """Keep it, and drop the one that nobody has needed for longest if it is too old."""
        now = connection.idle_since = time.monotonic()
        dropped = []
        with self._lock:
            if self._idle and now - self._idle[0].idle_since > IDLE_S:
                dropped.append(self._idle.pop(0))
            if connection.may_keep and not self._closed:
                self._idle.append(connection)
            else:
                dropped.append(connection)
        for each in dropped:
            each.close()

    def _connected(self, endpoint: Endpoint, seconds: float) -> Connection:
        until = time.monotonic() + seconds
        try:
            sock = _connect(outcome(self._names.addresses(endpoint), seconds), until)
            if endpoint.scheme == "https":
                sock = self._secured(sock, endpoint, until)
        except (OSError, ValueError) as error:
            raise no_connection(endpoint, error) from error
        return Connection(sock)

    def _secured(self, sock: socket.socket, endpoint: Endpoint, until: float) -> ssl.SSLSocket:
        try:
            context = self._trust.context()
            sock.settimeout(_left(until))
            return context.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise


class Connection:
    """One socket and where it stands."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._watch = Watch(sock)
        self.may_keep = True
        self.idle_since = 0.0

    def exchange(self, message: bytes, until: float) -> RawAnswer:
        """Send, and read until the answer is whole."""
        self._send(message, until)
        self._sock.settimeout(_left(until))
        piece = self._sock.recv(_PIECE)
        answer = in_one_piece(piece)
        return self._read_on(piece, until) if answer is None else answer

    def _read_on(self, piece: bytes, until: float) -> RawAnswer:
        reader = AnswerReader()
        while True:
            answer = reader.feed(piece) if piece else reader.end()
            if answer is not None:
                self.may_keep = bool(piece) and reader.may_keep
                return answer
            if not piece:
                raise ConnectionError("the connection was closed before the answer was whole")
            self._sock.settimeout(_left(until))
            piece = self._sock.recv(_PIECE)

    def _send(self, message: bytes, until: float) -> None:
        self._sock.settimeout(_left(until))
        sent = self._sock.send(message)
        while sent < len(message):
            self._sock.settimeout(_left(until))
            sent += self._sock.send(memoryview(message)[sent:])

    def is_usable(self, now: float) -> bool:
        """Whether the peer has not closed it and is not about to."""
        return now - self.idle_since < IDLE_S and not self._watch.readable()

    def close(self) -> None:
        self._sock.close()


def _connect(addresses: list[Address], until: float) -> socket.socket:
    error = OSError("the name has no address")
    for index, address in enumerate(addresses):
        sock = new_socket(address)
        try:
            sock.settimeout(share_of(_left(until), len(addresses) - index))
            sock.connect(address[4])
            return sock
        except OSError as failure:
            sock.close()
            error = failure
        except BaseException:
            sock.close()
            raise
    raise error


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def outcome(future: Future[T], seconds: float) -> T:
    """The result of what another thread does; raises TimeoutError if it takes longer."""
    return future.result(seconds)

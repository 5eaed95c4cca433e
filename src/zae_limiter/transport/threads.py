"""The transport of the sync tree: a pool of connections that threads share."""

from __future__ import annotations

import socket
import ssl
import time
from concurrent.futures import Future
from typing import TypeVar

from zae_limiter.clock import since_boot_ns
from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.transport.messages import (
    IDLE_S,
    Destination,
    HttpResponse,
    no_answer,
    no_connection,
)
from zae_limiter.transport.proxy import TunnelReader, tunnel_request
from zae_limiter.transport.response_reader import MalformedResponse, ResponseReader
from zae_limiter.transport.sockets import (
    Address,
    Resolver,
    SocketPoll,
    TrustStore,
    new_socket,
    time_per_address,
)

T = TypeVar("T")

# Most responses arrive in one piece: those of DynamoDB have a few hundred bytes.
_PIECE = 65_536


class Http:
    """Sends requests over pooled connections; the one used last is used first.

    There are as many connections as threads that send at once.
    """

    def __init__(self) -> None:
        self._idle: list[ThreadConnection] = []
        self._closed = False
        self.answered_s = 0.0  # when the last response came
        self._resolver = Resolver()
        self._trust = TrustStore()
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Drop the parent's connections: two processes on one would mix up their responses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def send(
        self, destination: Destination, message: bytes, timeout: float, connect_timeout: float
    ) -> HttpResponse:
        """Send one request and return its response.

        Raises NotSent or NoAnswer, and PermissionDenied if a proxy refuses our credentials.
        """
        until = time.monotonic() + timeout
        connection = self._pop_idle(destination) or self._connect(destination, connect_timeout)
        try:
            response = connection.exchange(message, until)
        except (OSError, MalformedResponse) as error:
            connection.close()
            was_idle = connection.is_reused_and_silent()
            raise no_answer(destination, error, was_idle=was_idle) from error
        except BaseException:  # an interrupt: the response may still come, for the next request
            connection.close()
            raise
        self._give_back(connection)
        return response

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _pop_idle(self, destination: Destination) -> ThreadConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable(destination, time.monotonic()):
                return connection
            connection.close()

    def _give_back(self, connection: ThreadConnection) -> None:
        """Keep the connection for reuse; drop the oldest idle connection if it is too old."""
        now = connection.idle_since = self.answered_s = time.monotonic()
        dropped = []
        with self._lock:
            if self._idle and now - self._idle[0].idle_since > IDLE_S:
                dropped.append(self._idle.pop(0))
            if connection.may_keep and not self._closed:
                self._idle.append(connection)
            else:
                dropped.append(connection)
        for old in dropped:
            old.close()

    def _connect(self, destination: Destination, seconds: float) -> ThreadConnection:
        until = time.monotonic() + seconds
        try:
            lookup = self._resolver.addresses(*destination.first_hop)
            sock = _connect(outcome(lookup, seconds), until)
            try:
                if destination.is_tunnelled:
                    _open_tunnel(sock, destination, until)
                if destination.is_tls:
                    sock = self._start_tls(sock, destination, until)
            except BaseException:
                sock.close()
                raise
        except (OSError, ValueError) as error:  # ValueError: a host that TLS cannot spell
            raise no_connection(destination, error) from error
        return ThreadConnection(sock, destination)

    def _start_tls(
        self, sock: socket.socket, destination: Destination, until: float
    ) -> ssl.SSLSocket:
        context = self._trust.context(destination.ca_bundle)
        sock.settimeout(_left(until))
        return context.wrap_socket(sock, server_hostname=destination.endpoint.tls_name)


class ThreadConnection:
    """One socket; ``may_keep`` says whether another request can be sent over it."""

    def __init__(self, sock: socket.socket, destination: Destination) -> None:
        self.destination = destination
        self._sock = sock
        self._poll = SocketPoll(sock)
        self.may_keep = True
        self.idle_since = 0.0
        self._has_answer = False  # whether a byte of the last answer has arrived

    def exchange(self, message: bytes, until: float) -> HttpResponse:
        """Send a request and read until its response is complete."""
        self._has_answer = False
        reader = ResponseReader(since_boot_ns())
        self._send(message, until)
        while True:
            self._sock.settimeout(_left(until))
            piece = self._sock.recv(_PIECE)
            if not piece:
                return self._ended(reader)
            self._has_answer = True
            response = reader.feed(piece)
            if response is not None:
                self.may_keep = reader.may_keep
                return response

    def _ended(self, reader: ResponseReader) -> HttpResponse:
        """Return the response that ends with the connection; raises OSError if it is incomplete."""
        response = reader.end()
        if response is None:
            raise ConnectionError("the connection was closed before the answer was complete")
        self.may_keep = False
        return response

    def _send(self, message: bytes, until: float) -> None:
        self._sock.settimeout(_left(until))
        sent = self._sock.send(message)
        while sent < len(message):
            self._sock.settimeout(_left(until))
            sent += self._sock.send(memoryview(message)[sent:])

    def is_usable(self, destination: Destination, now: float) -> bool:
        """Return whether the connection leads there, and will not be closed by the peer."""
        return (
            self.destination == destination
            and now - self.idle_since < IDLE_S
            and not self._poll.readable()
        )

    def is_reused_and_silent(self) -> bool:
        """Return whether the connection was used before, and the last request got no answer."""
        return self.idle_since > 0 and not self._has_answer

    def close(self) -> None:
        self._sock.close()


def _connect(addresses: list[Address], until: float) -> socket.socket:
    error = OSError("the name has no address")
    for index, address in enumerate(addresses):
        sock = new_socket(address)
        try:
            sock.settimeout(time_per_address(_left(until), len(addresses) - index))
            sock.connect(address[4])
            return sock
        except OSError as failure:
            sock.close()
            error = failure
        except BaseException:
            sock.close()
            raise
    raise error


def _open_tunnel(sock: socket.socket, destination: Destination, until: float) -> None:
    """Have the proxy connect the socket to the endpoint; raises OSError or PermissionDenied."""
    reader = TunnelReader(destination)
    sock.settimeout(_left(until))
    sock.sendall(tunnel_request(destination))
    sock.settimeout(_left(until))
    while not reader.feed(sock.recv(_PIECE)):
        sock.settimeout(_left(until))


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def outcome(future: Future[T], seconds: float) -> T:
    """Wait for the result of another thread; raises TimeoutError after ``seconds``."""
    return future.result(seconds)

"""One request on its way in a thread, and what it means when it fails."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from zae_limiter.exceptions import PermissionDenied, ZAELimiterError
from zae_limiter.transport.errors import NoAnswer, NotSent
from zae_limiter.transport.wire import RawAnswer, Request

_LEAST_S = 0.001


class GivenUp(Exception):
    """Nobody waits for an answer any more, so the request stays here."""


class Flight:
    """Who waits for it may go away at any time; then nothing leaves any more.

    ``has_left`` decides between NotSent and NoAnswer, ``has_surplus`` says that more came than
    the answer. ``ended`` has the answer or the error.
    """

    def __init__(self, request: Request, timeout: float, connect_timeout: float) -> None:
        now = time.monotonic()
        self.request = request
        self.until = now + timeout
        self.connect_until = now + min(connect_timeout, timeout)
        self.ended: Future[RawAnswer | ZAELimiterError] = Future()
        self.ended.set_running_or_notify_cancel()  # so that no waiter can cancel it
        self.has_left = False
        self.has_surplus = False
        self._given_up = False
        self._connection: Any = None
        self._lock = threading.Lock()

    def connect_left_s(self) -> float:
        """Never zero, which means "no limit" or "do not block" to sockets."""
        return max(self.connect_until - time.monotonic(), _LEAST_S)

    def left_s(self) -> float:
        return max(self.until - time.monotonic(), _LEAST_S)

    @property
    def is_awaited(self) -> bool:
        return not self._given_up

    def leave(self, connection: Any) -> None:
        """The first byte is sent next, over a connection that stands."""
        with self._lock:
            if self._given_up:
                raise GivenUp
            self.has_left = True
            self._connection = connection

    def arrive(self) -> bool:
        """The connection is not needed any more; False if it must not be used again."""
        with self._lock:
            self._connection = None
            return not self._given_up and not self.has_surplus

    def withdraw(self) -> bool:
        """Keep it from leaving; False if it has left."""
        with self._lock:
            self._given_up = self._given_up or not self.has_left
            return not self.has_left

    def give_up(self) -> None:
        """It does not leave any more; if it has, its thread is woken and drops the connection."""
        with self._lock:
            self._given_up = True
            connection, self._connection = self._connection, None
            if connection is not None:
                _cut(connection.sock)


def _cut(sock: Any) -> None:
    """End what another thread waits for; it closes the socket itself."""
    plain = getattr(sock, "socket", sock)  # TLS within TLS is no socket
    if isinstance(plain, socket.socket):
        try:
            socket.socket.shutdown(plain, socket.SHUT_RDWR)  # TLS must not lose its state
        except OSError:
            return


def failure(flight: Flight, error: BaseException, via: str | None) -> ZAELimiterError:
    """What is known about the request after ``error``."""
    root = _root(error)
    known = _what_is_known(flight, root, via)
    known.__cause__ = root
    return known


def _what_is_known(flight: Flight, root: BaseException, via: str | None) -> ZAELimiterError:
    endpoint = flight.request.endpoint
    through = f" through the proxy {via}" if via else ""
    if flight.has_left:
        return NoAnswer(f"no answer from {endpoint.url}{through}: {_words(root)}", cause=root)
    if via and "407" in str(root):
        return refused_by_proxy(via)
    advice = f"; check the proxy, or set NO_PROXY={endpoint.host} to go without it" if via else ""
    return NotSent(f"no connection to {endpoint.url}{through}: {_words(root)}{advice}", cause=root)


def late(flight: Flight, via: str | None) -> ZAELimiterError:
    """What is known when it has not ended in time. It has been given up."""
    return failure(flight, TimeoutError(), via)


def refused_by_proxy(via: str) -> PermissionDenied:
    """For status 407: the store has not seen the request."""
    return PermissionDenied(
        f"the proxy {via} wants a user and a password (407), or others than it was given; put "
        "them into its URL: http://USER:PASSWORD@HOST:PORT, with special characters like %40"
    )


def _root(error: BaseException) -> BaseException:
    """botocore and urllib3 wrap what happened, each in its own way."""
    for _ in range(10):
        inner = _wrapped(error)
        if inner is None or inner is error:
            break
        error = inner
    return error


def _wrapped(error: BaseException) -> BaseException | None:
    candidates = [
        getattr(error, "kwargs", {}).get("error"),
        getattr(error, "original_error", None),
        *error.args,
        error.__cause__,
        None if isinstance(error, OSError) else error.__context__,
    ]
    return next((each for each in candidates if isinstance(each, BaseException)), None)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    name = type(error).__name__
    if isinstance(error, OSError):
        return str(error) or name
    if name == "CertificateError":
        return f"{name}: {error}"
    return name  # the text may quote the URL of a proxy

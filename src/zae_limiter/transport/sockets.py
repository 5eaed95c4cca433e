"""Addresses, sockets and TLS, which both transports need to open a connection."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork

# The family, kind, protocol, canonical name and address that getaddrinfo returns.
Address = tuple[Any, ...]

# Long enough for a burst of new connections to share a lookup, short enough for a failover.
_DNS_CACHE_S = 5.0


class Resolver:
    """Resolves host names in a thread, since the system's resolver has no timeout.

    Concurrent lookups of a host share one thread; results are cached for 5 s, failures are not.
    """

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], tuple[float, Future[list[Address]]]] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Drop lookups in flight: their threads exist in the parent only."""
        self._lookups = {}

    def addresses(self, host: str, port: int) -> Future[list[Address]]:
        """Resolve to addresses in the order of preference; the future fails with OSError."""
        with self._lock:
            since, future = self._lookups.get((host, port), (0.0, None))
            now = time.monotonic()
            if future is None or (future.done() and not _is_fresh(future, now - since)):
                future = Future()
                future.set_running_or_notify_cancel()  # so that no waiter can cancel it
                self._lookups[host, port] = (now, future)
                _start_lookup(host, port, future)
            return future


def _is_fresh(future: Future[list[Address]], age_s: float) -> bool:
    return age_s < _DNS_CACHE_S and future.exception() is None


def _start_lookup(host: str, port: int, future: Future[list[Address]]) -> None:
    try:
        future.set_result(_resolve(host, port, socket.AI_NUMERICHOST))  # needs no DNS
    except (OSError, UnicodeError):
        thread = threading.Thread(
            target=_resolve_into, args=(host, port, future), daemon=True, name="zael-dns"
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the process is ending
            future.set_exception(OSError(f"the name was not looked up: {error}"))


def _resolve_into(host: str, port: int, future: Future[list[Address]]) -> None:
    try:
        future.set_result(_resolve(host, port, 0))
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that DNS cannot spell
        future.set_exception(OSError(str(error)))


def _resolve(host: str, port: int, flags: int) -> list[Address]:
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)]


def new_socket(address: Address) -> socket.socket:
    """Return a socket that is not connected yet, and that sends small messages at once."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def time_per_address(seconds: float, addresses: int) -> float:
    """Return the share of one address, so that a silent address leaves time for the next."""
    return seconds / addresses


class SocketPoll:
    """Tells without waiting whether a socket is readable.

    An idle connection is readable if the peer has closed it; ``readable()`` returns a true value
    then. `select` is used only where there is no `poll`: it cannot watch file descriptors above
    1023.
    """

    __slots__ = ("_sock", "readable")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.readable: Callable[[], object] = self._select
        if hasattr(select, "poll"):  # not on Windows
            poll = select.poll()
            poll.register(sock.fileno(), select.POLLIN)
            self.readable = partial(poll.poll, 0)

    def _select(self) -> bool:
        return bool(select.select([self._sock], [], [], 0)[0])


class TrustStore:
    """TLS contexts that check names and certificates, made when they are first needed.

    They trust the certificates of the CA bundle, else the system's, else botocore's.
    """

    def __init__(self) -> None:
        self._contexts: dict[str | None, ssl.SSLContext] = {}

    def context(self, ca_bundle: str | None) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            if ca_bundle is None:
                context = ssl.create_default_context(cafile=_botocore_ca_bundle())
            else:
                context = _context_of(ca_bundle)
            self._contexts[ca_bundle] = context
        return context


def _context_of(ca_bundle: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"the certificates in {ca_bundle} cannot be read: {reason}") from error
    # As strict as botocore: Python 3.13 refuses many self-made certificates otherwise.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _botocore_ca_bundle() -> str | None:
    """Return botocore's file of certificates; None if the system has certificates of its own."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return None
    from botocore.httpsession import get_cert_path

    return str(get_cert_path(True))

"""Addresses of hosts."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.transport.wire import Endpoint

# Family, kind, protocol, canonical name, address: as getaddrinfo says it.
Address = tuple[Any, ...]

_KEPT_S = 5.0


class Names:
    """Asks in a thread, since the system's resolver knows no timeout; keeps answers a while."""

    def __init__(self) -> None:
        self._asked: dict[Endpoint, tuple[float, Future[list[Address]]]] = {}
        self._lock = threading.RLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The threads that asked are the parent's."""
        self._lock = threading.RLock()
        self._asked = {}

    def addresses(self, endpoint: Endpoint) -> Future[list[Address]]:
        """In the order of preference; fails with an OSError."""
        with self._lock:
            since, future = self._asked.get(endpoint, (0.0, None))
            now = time.monotonic()
            if future is None or (future.done() and not _is_fresh(future, now - since)):
                future = Future()
                future.set_running_or_notify_cancel()  # so that no waiter can cancel it
                self._asked[endpoint] = (now, future)
                _ask(endpoint, future)
            return future


def _is_fresh(future: Future[list[Address]], age_s: float) -> bool:
    return age_s < _KEPT_S and future.exception() is None


def _ask(endpoint: Endpoint, future: Future[list[Address]]) -> None:
    try:
        future.set_result(_resolve(endpoint, socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        thread = threading.Thread(
            target=_resolve_into, args=(endpoint, future), daemon=True, name="zael-names"
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the process is ending
            future.set_exception(OSError(f"the name was not looked up: {error}"))


def _resolve_into(endpoint: Endpoint, future: Future[list[Address]]) -> None:
    try:
        future.set_result(_resolve(endpoint, 0))
    except (OSError, UnicodeError) as error:  # a name that cannot be written in DNS
        future.set_exception(OSError(str(error)))


def _resolve(endpoint: Endpoint, flags: int) -> list[Address]:
    kind = socket.SOCK_STREAM
    return [*socket.getaddrinfo(endpoint.host, endpoint.port, type=kind, flags=flags)]

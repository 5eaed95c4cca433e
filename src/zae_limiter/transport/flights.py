"""Calls under way, so that closing can wait for them."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.exceptions import InfrastructureError


class Flights:
    """Knows the calls under way; refuses new ones once closed.

    Changes of a set are atomic, so calls need no lock: whoever starts looks whether it is closed
    after it was noted, and whoever closes looks for calls after it has said so.
    """

    def __init__(self) -> None:
        self._under_way: set[int] = set()
        self._landed: Future[None] | None = None
        self._lock = threading.RLock()  # a signal handler may call while its thread is in here
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's calls are not ours."""
        self._under_way = set()
        self._lock = threading.RLock()

    def start(self, flight: Flight) -> None:
        self._under_way.add(id(flight))
        if self._landed is not None:
            self.end(flight)
            raise InfrastructureError("the repository is closed; open it again")

    def end(self, flight: Flight) -> None:
        """May be called twice."""
        self._under_way.discard(id(flight))
        if self._landed is not None:
            with self._lock:
                self._note()

    def close(self) -> Future[None]:
        """Done when nothing is under way any more."""
        with self._lock:
            if self._landed is None:
                self._landed = Future()
                self._landed.set_running_or_notify_cancel()
                self._note()
            return self._landed

    def _note(self) -> None:
        if not self._under_way and self._landed is not None and not self._landed.done():
            self._landed.set_result(None)


class Flight:
    """One call. It ends with the frame that holds it, if an interrupt kept it from being ended."""

    __slots__ = ("_flights",)

    def __init__(self, flights: Flights) -> None:
        self._flights = flights

    def __del__(self) -> None:
        self._flights.end(self)

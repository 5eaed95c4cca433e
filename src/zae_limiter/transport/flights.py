"""Calls under way, so that closing can wait for them."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.exceptions import InfrastructureError


class Flights:
    """Counts calls; refuses new ones once closed."""

    def __init__(self) -> None:
        self._count = 0
        self._landed: Future[None] | None = None
        self._lock = threading.RLock()  # a signal handler may call while its thread is in here
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's calls are not ours."""
        self._count = 0
        self._lock = threading.RLock()

    def start(self, flight: Flight) -> None:
        with self._lock:
            if self._landed is not None:
                raise InfrastructureError("the repository is closed; open it again")
            self._count += 1
            flight.is_counted = True

    def end(self, flight: Flight) -> None:
        """May be called twice."""
        with self._lock:
            if flight.is_counted:
                flight.is_counted = False
                self._count -= 1
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
        if self._count <= 0 and self._landed is not None and not self._landed.done():
            self._landed.set_result(None)


class Flight:
    """One call. It ends with the frame that holds it, if an interrupt kept it from being ended."""

    __slots__ = ("_flights", "is_counted")

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self.is_counted = False

    def __del__(self) -> None:
        if self.is_counted:
            self._flights.end(self)

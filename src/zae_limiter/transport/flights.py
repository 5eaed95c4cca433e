"""Calls under way, so that closing can wait for them."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.exceptions import InfrastructureError


class Flights:
    """Knows the calls under way; refuses new ones once closed.

    Without a lock, which a signal handler could not wait for while its own thread holds it. Each
    change of a set or list is atomic: whoever starts looks whether it is closed after it was
    noted, and whoever closes looks for calls after it has said so.
    """

    def __init__(self) -> None:
        self._closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's calls are not ours."""
        self._under_way: set[int] = set()
        self._landed: Future[None] = Future()
        self._landed.set_running_or_notify_cancel()
        self._to_tell = [self._landed]

    def start(self, flight: Flight) -> None:
        self._under_way.add(id(flight))
        if self._closed:
            self.end(flight)
            raise InfrastructureError("the repository is closed; open it again")

    def end(self, flight: Flight) -> None:
        """May be called twice."""
        self._under_way.discard(id(flight))
        if self._closed:
            self._note()

    def close(self) -> Future[None]:
        """Done when nothing is under way any more."""
        self._closed = True
        self._note()
        return self._landed

    def _note(self) -> None:
        """Of all who find that nothing is under way, one says so."""
        if not self._under_way:
            with suppress(IndexError):
                self._to_tell.pop().set_result(None)


class Flight:
    """One call. It ends with the frame that holds it, if an interrupt kept it from being ended."""

    __slots__ = ("_flights",)

    def __init__(self, flights: Flights) -> None:
        self._flights = flights

    def __del__(self) -> None:
        self._flights.end(self)

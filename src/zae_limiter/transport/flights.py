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
        self.is_closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's calls are not ours."""
        self.under_way: set[int] = set()
        self._landed: Future[None] = Future()
        self._landed.set_running_or_notify_cancel()
        self._to_tell = [self._landed]

    def close(self) -> Future[None]:
        """Done when nothing is under way any more."""
        self.is_closed = True
        self.note()
        return self._landed

    def note(self) -> None:
        """Of all who find that nothing is under way, one says so."""
        if not self.under_way:
            with suppress(IndexError):
                self._to_tell.pop().set_result(None)


class Flight:
    """One call. It ends with the frame that holds it, if an interrupt kept it from being ended."""

    __slots__ = ("_flights",)

    def __init__(self, flights: Flights) -> None:
        """Raises InfrastructureError if no more calls are taken."""
        self._flights = flights
        flights.under_way.add(id(self))
        if flights.is_closed:
            self.end()
            raise InfrastructureError("the repository is closed; open it again")

    def end(self) -> None:
        """May be called twice."""
        flights = self._flights
        flights.under_way.discard(id(self))
        if flights.is_closed:
            flights.note()

    __del__ = end

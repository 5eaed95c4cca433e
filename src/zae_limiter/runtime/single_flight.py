"""At most one call in flight for each key. Callers that want the same result wait for that call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from zae_limiter.runtime.locks import SignalSafeLock, renew_after_fork
from zae_limiter.runtime.waiter import Wakeable

# If a call takes longer than this, another caller makes it once more: the event loop of the first
# caller may be closed, or its thread gone. A quarter of the default request_timeout leaves time for
# the second call.
TAKE_OVER_S = 0.5
# The first waiters check after that time whether the call has ended; all others wait until their
# own deadlines. With a timer for each, a crowd that keeps the loop busy would time out at once.
WATCHERS = 3
# A caller that comes later takes over only after this many times TAKE_OVER_S. Starting a crowd may
# keep the loop busy for longer than a read takes, and a watcher has usually taken over by then.
LATE_FACTOR = 10
# If a watcher is woken this much too late, the loop was busy, and the answer was delayed as well.
STALL_S = 0.05

T = TypeVar("T")
W = TypeVar("W", bound=Wakeable)


class Flight(Generic[T]):
    """One call in flight. It ends with a result, an error, or neither if its caller was cancelled.

    ``edition`` tells which callers may use the result: a caller of another edition makes a call of
    its own.
    """

    __slots__ = (
        "_attempt_s",
        "_take_over_s",
        "_waiters",
        "edition",
        "error",
        "has_landed",
        "key",
        "result",
    )

    def __init__(self, key: Hashable, edition: Hashable, take_over_s: float) -> None:
        self.key = key
        self.edition = edition
        self.has_landed = False
        self.result: T | None = None
        self.error: Exception | None = None
        self._attempt_s = time.monotonic()
        self._take_over_s = take_over_s
        self._waiters: list[Wakeable] = []

    def patience_s(self, waiter: Wakeable) -> float:
        """Return the seconds after which a waiter checks whether to make the call itself."""
        if any(waiter is watcher for watcher in self._waiters[:WATCHERS]):
            return max(self._attempt_s + self._take_over_s - time.monotonic(), 0.0)
        return math.inf

    def take_over(self, factor: int = 1) -> bool:
        """Return True, to one caller only, if the last attempt of the call is too old."""
        now_s = time.monotonic()
        late_s = now_s - self._attempt_s - self._take_over_s * factor
        if late_s < 0:
            return False
        if factor == 1 and late_s > STALL_S:
            self._attempt_s = now_s  # the loop was busy, so the answer gets the same time again
            return False
        self._attempt_s = now_s
        return True

    def add(self, waiter: Wakeable) -> None:
        self._waiters.append(waiter)

    def wake_all(self) -> None:
        for waiter in self._waiters:
            waiter.wake()


class SingleFlight(Generic[T]):
    """The calls in flight, shared by all tasks and threads of a process.

    If a call takes longer than ``take_over_s``, another caller makes it once more.
    """

    def __init__(self, take_over_s: float = TAKE_OVER_S) -> None:
        self._take_over_s = take_over_s
        self._flights: dict[Hashable, Flight[T]] = {}
        self._lock = SignalSafeLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._flights = {}  # the parent's callers do not exist in the child

    def join(
        self, key: Hashable, edition: Hashable, waiter: Callable[[], W]
    ) -> tuple[Flight[T], W | None]:
        """Return a flight and a waiter for it; None if the caller must make the call itself."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or flight.edition != edition:
                flight = self._flights[key] = Flight(key, edition, self._take_over_s)
                return flight, None
            if flight.take_over(LATE_FACTOR):
                return flight, None
            waiting = waiter()
            flight.add(waiting)
            return flight, waiting

    def takes_over(self, flight: Flight[T]) -> bool:
        """Tell a waiter that has lost patience whether to make the call itself."""
        with self._lock:
            return not flight.has_landed and flight.take_over()

    def land(
        self, flight: Flight[T], result: T | None = None, error: Exception | None = None
    ) -> None:
        """End a call and wake its waiters. If two attempts were made, the first to end decides."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            if flight.has_landed:
                return
            flight.has_landed = True
            flight.result, flight.error = result, error
        flight.wake_all()

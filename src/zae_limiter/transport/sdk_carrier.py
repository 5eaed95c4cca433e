"""Carries requests through botocore's HTTP stack, in threads of its own."""

from __future__ import annotations

import threading

from zae_limiter.concurrency.fork import renew_after_fork
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.transport.choosing import Route
from zae_limiter.transport.crew import Crew
from zae_limiter.transport.errors import NotSent
from zae_limiter.transport.sdk import Sdk
from zae_limiter.transport.sdk_flight import Flight, failure, late
from zae_limiter.transport.wire import IDLE_S, RawAnswer, Request

MAX_THREADS = 64


class Carrier:
    """What both trees share. Threads, because botocore's stack blocks and keeps no deadline."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._sdk = Sdk(route, MAX_THREADS)
        self._of_parent: list[Sdk] = []
        self._crew = Crew(self._carry, MAX_THREADS, IDLE_S)
        self._flights: set[Flight] = set()
        self._lock = threading.RLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Connections are the parent's: left alone, since a lock of theirs may be held."""
        self._lock = threading.RLock()
        self._flights = set()
        self._of_parent.append(self._sdk)
        self._sdk = Sdk(self._route, MAX_THREADS)

    def start(self, request: Request, timeout: float, connect_timeout: float) -> Flight:
        flight = Flight(request, timeout, connect_timeout)
        with self._lock:
            self._flights.add(flight)
        if not self._crew.take(flight):
            self._forget(flight)
            raise NotSent(f"no connection to {request.endpoint.url}: the client is closed")
        return flight

    def outcome(self, flight: Flight) -> RawAnswer:
        """When the time is over or it has ended; raises what went wrong."""
        if flight.ended.done():
            ended = flight.ended.result()
        else:
            flight.give_up()
            ended = late(flight, self._route.via)
        if isinstance(ended, ZAELimiterError):
            raise ended
        return ended

    def close(self) -> None:
        """Let go of all connections, also those in use."""
        self._crew.close()
        with self._lock:
            flights = list(self._flights)
        for flight in flights:
            flight.give_up()
        self._sdk.close()

    def _carry(self, flight: Flight) -> None:
        ended: RawAnswer | ZAELimiterError
        try:
            ended = self._sdk.exchange(flight)
        except ZAELimiterError as error:
            ended = error
        except Exception as error:  # noqa: BLE001 - whatever botocore and urllib3 raise
            ended = failure(flight, error, self._route.via)
        flight.arrive()
        self._forget(flight)
        flight.ended.set_result(ended)

    def _forget(self, flight: Flight) -> None:
        with self._lock:
            self._flights.discard(flight)

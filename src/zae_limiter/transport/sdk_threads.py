"""botocore's HTTP stack for the sync tree."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from zae_limiter.transport.wire import RawAnswer, Request

if TYPE_CHECKING:
    from zae_limiter.transport.choosing import Route


class SdkHttp:
    """Like ``Http``; the work is another thread's, so that names and proxies cannot delay us."""

    def __init__(self, route: Route) -> None:
        from zae_limiter.transport.sdk_carrier import Carrier

        self._carrier = Carrier(route)

    def send(self, request: Request, timeout: float, connect_timeout: float) -> RawAnswer:
        """One exchange; raises NotSent or NoAnswer."""
        flight = self._carrier.start(request, timeout, connect_timeout)
        try:
            with suppress(TimeoutError):
                flight.ended.result(flight.connect_left_s())
            if not flight.ended.done() and not flight.withdraw():
                with suppress(TimeoutError):
                    flight.ended.result(flight.left_s())
            return self._carrier.outcome(flight)
        finally:
            flight.give_up()

    def close(self) -> None:
        """Let go of all connections, also those in use."""
        self._carrier.close()

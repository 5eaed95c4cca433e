"""botocore's HTTP stack for the async tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from zae_limiter.transport.wire import RawAnswer, Request

if TYPE_CHECKING:
    from zae_limiter.transport.choosing import Route


class SdkHttp:
    """Like ``AHttp``; the event loop is never blocked, and nobody waits for a thread too long."""

    def __init__(self, route: Route) -> None:
        from zae_limiter.transport.sdk_carrier import Carrier

        self._carrier = Carrier(route)

    async def send(self, request: Request, timeout: float, connect_timeout: float) -> RawAnswer:
        """One exchange; raises NotSent or NoAnswer."""
        flight = self._carrier.start(request, timeout, connect_timeout)
        arrival = asyncio.wrap_future(flight.ended)
        try:
            await asyncio.wait([arrival], timeout=flight.connect_left_s())
            if not arrival.done() and not flight.withdraw():
                await asyncio.wait([arrival], timeout=flight.left_s())
            return self._carrier.outcome(flight)
        finally:
            arrival.cancel()
            flight.give_up()

    async def close(self) -> None:
        """Let go of all connections, also those in use."""
        self._carrier.close()

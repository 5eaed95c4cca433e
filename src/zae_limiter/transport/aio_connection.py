"""One connection of an event loop, and how it is opened."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from zae_limiter.clock import since_boot_ns
from zae_limiter.transport.messages import IDLE_S, Destination, HttpResponse
from zae_limiter.transport.proxy import TunnelReader, tunnel_request
from zae_limiter.transport.response_reader import MalformedResponse, ResponseReader
from zae_limiter.transport.sockets import Address, SocketPoll, new_socket, time_per_address

_TUNNEL_PIECE = 4096  # the consent of a proxy is shorter
# The buffer holds one TLS record, or many responses about buckets. Without a buffer of ours asyncio
# allocates 256 KiB for every read, which costs up to a tenth of an acquire.
_BUFFER = 16 * 1024


class AioConnection(asyncio.BufferedProtocol):
    """One socket. ``may_keep`` is False while a response is awaited, and after the socket's end."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self._loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[HttpResponse] | None = None
        self._reader = ResponseReader()
        self._has_answer = False  # whether a byte of the answer has arrived
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.may_keep = True
        self.idle_since = 0.0
        self._buffer = memoryview(bytearray(_BUFFER))

    def send(self, message: bytes, until: float) -> asyncio.Future[HttpResponse]:
        """Send a request; the returned future has its response.

        A caller that no longer waits sets ``waiter`` to None.
        """
        self.may_keep = False
        self._has_answer = False
        waiter: asyncio.Future[HttpResponse] = self._loop.create_future()
        self.waiter = waiter
        self._until = until
        if self._timer is None or until < self._timer_at:
            self._set_timer()
        self._reader = ResponseReader(since_boot_ns())
        self._transport.write(message)
        return waiter

    def _set_timer(self) -> None:
        """Set the timer to the deadline of this exchange.

        One timer serves many exchanges, since most deadlines never come: it is set again only if
        it would fire too late.
        """
        self._drop_timer()
        self._timer_at = self._until
        self._timer = self._loop.call_at(self._until, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self.waiter is None:
            return
        if self._until > self._timer_at:
            self._set_timer()
        else:
            fail(self.waiter, TimeoutError())

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_usable(self, destination: Destination, now: float) -> bool:
        """Return whether the connection leads there, and will not be closed by the peer."""
        return (
            self.may_keep
            and self.destination == destination
            and now - self.idle_since < IDLE_S
            and not self._poll.readable()
        )

    def is_reused_and_silent(self) -> bool:
        """Return whether the connection was used before, and the last request got no answer."""
        return self.idle_since > 0 and not self._has_answer

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll = SocketPoll(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        waiter = self.waiter
        if waiter is None or waiter.done():  # nobody waits for these bytes
            self.may_keep = False
            return
        self._has_answer = True
        try:
            response = self._reader.feed(self._buffer[:nbytes])
        except MalformedResponse as error:
            fail(waiter, error)
            return
        if response is not None:
            self.may_keep = self._reader.may_keep
            waiter.set_result(response)

    def eof_received(self) -> None:
        self.may_keep = False
        response = self._reader.end()
        if response is not None and self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.may_keep = False
        self._drop_timer()
        if self.waiter is not None:
            fail(
                self.waiter,
                exc or ConnectionError("the connection was closed before the answer was complete"),
            )


async def connect(addresses: list[Address], until: float) -> socket.socket:
    """Connect to the first address that answers; each address gets its share of the time."""
    loop = asyncio.get_running_loop()
    error = OSError("the name has no address")
    for index, address in enumerate(addresses):
        sock = new_socket(address)
        try:
            sock.setblocking(False)
            share = time_per_address(until - loop.time(), len(addresses) - index)
            async with asyncio.timeout(share):
                await loop.sock_connect(sock, address[4])
            return sock
        except OSError as failure:
            sock.close()
            error = failure
        except BaseException:
            sock.close()
            raise
    raise error


async def open_tunnel(sock: socket.socket, destination: Destination) -> None:
    """Have the proxy connect the socket to the endpoint; raises OSError or PermissionDenied."""
    loop = asyncio.get_running_loop()
    reader = TunnelReader(destination)
    await loop.sock_sendall(sock, tunnel_request(destination))
    while not reader.feed(await loop.sock_recv(sock, _TUNNEL_PIECE)):
        pass


def fail(waiter: asyncio.Future[Any], error: Exception) -> None:
    """Raise the error in the caller that waits, if there still is one."""
    if not waiter.done():
        waiter.set_exception(error)

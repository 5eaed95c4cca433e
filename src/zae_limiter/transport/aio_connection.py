"""One connection of an event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from zae_limiter.transport.http1 import AnswerReader, Malformed
from zae_limiter.transport.names import Address
from zae_limiter.transport.sockets import Watch, new_socket, share_of
from zae_limiter.transport.wire import IDLE_S, RawAnswer


class Connection(asyncio.Protocol):
    """One socket and where it stands; ``may_keep`` only between two exchanges."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[RawAnswer] | None = None
        self._reader = AnswerReader()
        self.may_keep = True
        self.idle_since = 0.0

    async def exchange(self, message: bytes, until: float) -> RawAnswer:
        """Send, and wait until the answer is whole."""
        loop = asyncio.get_running_loop()
        self.may_keep = False
        self._reader = AnswerReader()
        waiter: asyncio.Future[RawAnswer] = loop.create_future()
        self._waiter = waiter
        timer = loop.call_at(until, _fail, waiter, TimeoutError())
        try:
            self._transport.write(message)
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def is_usable(self, now: float) -> bool:
        """Whether the peer has not closed it and is not about to."""
        return self.may_keep and now - self.idle_since < IDLE_S and not self._watch.readable()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._watch = Watch(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():  # nobody asked
            self.may_keep = False
            return
        try:
            answer = self._reader.feed(data)
        except Malformed as error:
            _fail(waiter, error)
            return
        if answer is not None:
            self.may_keep = self._reader.may_keep
            waiter.set_result(answer)

    def eof_received(self) -> None:
        self.may_keep = False
        answer = self._reader.end()
        if answer is not None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.may_keep = False
        if self._waiter is not None:
            _fail(self._waiter, exc or ConnectionError("it was closed before the answer was whole"))


async def connect(addresses: list[Address], until: float) -> socket.socket:
    """The first address that answers; each gets its share of the time."""
    loop = asyncio.get_running_loop()
    error = OSError("the name has no address")
    for index, address in enumerate(addresses):
        sock = new_socket(address)
        try:
            sock.setblocking(False)
            share = share_of(until - loop.time(), len(addresses) - index)
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


def _fail(waiter: asyncio.Future[RawAnswer], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)

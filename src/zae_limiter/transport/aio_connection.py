"""One connection of an event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from zae_limiter.concurrency.steady import Steady
from zae_limiter.transport.http1 import AnswerReader, Malformed, in_one_piece
from zae_limiter.transport.names import Address
from zae_limiter.transport.sockets import Watch, new_socket, share_of
from zae_limiter.transport.wire import IDLE_S, RawAnswer


class Connection(asyncio.Protocol):
    """One socket and where it stands; ``may_keep`` only between two exchanges."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiter: Steady[RawAnswer] | None = None
        self._reader: AnswerReader | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.may_keep = True
        self.idle_since = 0.0

    def send(self, message: bytes, until: float) -> Steady[RawAnswer]:
        """What it returns is done when the answer is whole.

        Whoever does not wait any more sets ``waiter`` to None.
        """
        self.may_keep = False
        self._reader = None
        waiter: Steady[RawAnswer] = Steady(loop=self._loop)
        self.waiter = waiter
        self._until = until
        if self._timer is None or until < self._timer_at:
            self._set_timer()
        self._transport.write(message)
        return waiter

    def _set_timer(self) -> None:
        """One timer serves many exchanges: it is only set anew when it is too late or has gone off.

        Setting and cancelling one for each exchange would cost more than the exchange's own part.
        """
        self._drop_timer()
        self._timer_at = self._until
        self._timer = self._loop.call_at(self._until, self._look_at_time)

    def _look_at_time(self) -> None:
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

    def is_usable(self, now: float) -> bool:
        """Whether the peer has not closed it and is not about to."""
        return self.may_keep and now - self.idle_since < IDLE_S and not self._watch.readable()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._watch = Watch(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        waiter = self.waiter
        if waiter is None or waiter.done():  # nobody asked
            self.may_keep = False
            return
        if self._reader is None:
            answer = in_one_piece(data)
            if answer is not None:
                self.may_keep = True
                waiter.set_result(answer)
                return
            self._reader = AnswerReader()
        self._read_on(self._reader, data, waiter)

    def _read_on(self, reader: AnswerReader, data: bytes, waiter: Steady[RawAnswer]) -> None:
        try:
            answer = reader.feed(data)
        except Malformed as error:
            fail(waiter, error)
            return
        if answer is not None:
            self.may_keep = reader.may_keep
            waiter.set_result(answer)

    def eof_received(self) -> None:
        self.may_keep = False
        answer = None if self._reader is None else self._reader.end()
        if answer is not None and self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.may_keep = False
        self._drop_timer()
        if self.waiter is not None:
            fail(self.waiter, exc or ConnectionError("it was closed before the answer was whole"))


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


def fail(waiter: asyncio.Future[Any], error: Exception) -> None:
    """Raise it where somebody still waits."""
    if not waiter.done():
        waiter.set_exception(error)

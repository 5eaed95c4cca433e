"""What both transports do to sockets."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from functools import partial

from zae_limiter.transport.names import Address


class Watch:
    """Tells whether there is something to read: on an idle connection that is its end.

    What ``readable`` returns is true then.
    """

    __slots__ = ("_sock", "readable")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.readable: Callable[[], object] = self._selected
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock.fileno(), select.POLLIN)
            self.readable = partial(poll.poll, 0)

    def _selected(self) -> bool:
        return bool(select.select([self._sock], [], [], 0)[0])


def new_socket(address: Address) -> socket.socket:
    """Not yet connected; small messages leave at once."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def share_of(seconds: float, addresses: int) -> float:
    """How long one of several addresses may take, so that each gets its turn."""
    return seconds / addresses

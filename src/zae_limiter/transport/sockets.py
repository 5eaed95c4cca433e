"""What both transports do to sockets."""

from __future__ import annotations

import select
import socket

from zae_limiter.transport.names import Address


class Watch:
    """Tells whether there is something to read: on an idle connection that is its end."""

    __slots__ = ("_poll", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)

    def readable(self) -> bool:
        if self._poll is not None:
            return bool(self._poll.poll(0))
        return bool(select.select([self._sock], [], [], 0)[0])


def new_socket(address: Address) -> socket.socket:
    """Not yet connected; small messages leave at once."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def share_of(seconds: float, addresses: int) -> float:
    """How long one of several addresses may take, so that each gets its turn."""
    return seconds / addresses

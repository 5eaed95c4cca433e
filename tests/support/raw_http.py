"""Requests as bytes, as no client library would send them, and the answers to them."""

import errno
import re
import socket
from typing import NamedTuple

HEAD_END = b"\r\n\r\n"
TIMEOUT_S = 30
HUNG_UP = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
_INTERIM = re.compile(rb"^HTTP/1\.1 1\d\d .*?\r\n\r\n", re.DOTALL)
_WITHOUT_BODY = re.compile(rb"^HTTP/1\.1 (204|304) ")
_LENGTH = re.compile(rb"^content-length: *(\d+)\r?$", re.IGNORECASE | re.MULTILINE)


class RawAnswer(NamedTuple):
    """The first answer on a connection; a status of 0 is none."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self):
        return self.headers.get("content-type", "").partition(";")[0]

    @property
    def whole(self):
        """Everything that a client sees, as one text."""
        return repr(self.headers).encode() + self.body


NONE = RawAnswer(0, {}, b"")


def request(method, target, headers=(), body=b"", *, length=None):
    """Return the bytes of a request; ``length`` is the announced one, if it is a lie."""
    lines = [b" ".join((method, target, b"HTTP/1.1"))]
    lines += [name + b": " + value for name, value in headers]
    if body or length is not None:
        lines.append(b"Content-Length: %d" % (len(body) if length is None else length))
    return b"\r\n".join(lines) + HEAD_END + body


def ask(port, data, *, hangs_up=False):
    """Send bytes and return the answer; with ``hangs_up``, say at once that nothing follows."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        try:
            connection.sendall(data)
            if hangs_up:
                connection.shutdown(socket.SHUT_WR)
        except OSError as error:  # refused before all was sent; the answer may be there already
            if error.errno not in HUNG_UP:
                raise
        return _parsed(_received(connection, is_head=data.startswith(b"HEAD ")))


def _received(connection, *, is_head):
    data = b""
    try:
        while not _is_whole(data, is_head):
            chunk = connection.recv(65_536)
            if not chunk:
                return data
            data = _INTERIM.sub(b"", data + chunk)
    except ConnectionError:
        pass
    return data


def _is_whole(data, is_head):
    head, end, body = data.partition(HEAD_END)
    if not end:
        return False
    length = _LENGTH.search(head)
    if is_head or _WITHOUT_BODY.match(head):
        return True
    return length is not None and len(body) >= int(length[1])


def _parsed(data):
    head, end, body = data.partition(HEAD_END)
    if not end:
        return NONE
    line, *others = head.decode("latin-1").split("\r\n")
    headers = {}
    for other in others:
        name, _, value = other.partition(":")
        headers[name.lower()] = value.strip()
    return RawAnswer(int(line.split()[1]), headers, body)

"""A server on a real socket that does what a script says, one step per request."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from contextlib import ExitStack, contextmanager
from zlib import crc32

from tests.integration.transport.listening import Gone, Listener

OK = {"Attributes": {"n": {"N": "1"}}}


class Wire:
    """The server's end of one connection."""

    def __init__(self, sock, server):
        self._sock = sock
        self.server = server

    def read(self):
        """One request: headers with lower-case names, and the body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._recv()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:])
        headers = {name.lower(): value for name, value in pairs}
        while len(body) < int(headers["content-length"]):
            body += self._recv()
        self.server.seen.append((headers, body))
        return headers, body

    def _recv(self):
        piece = self._sock.recv(65_536)
        if not piece:
            raise Gone
        return piece

    def write(self, data):
        self._sock.sendall(data)

    def reset(self):
        """Close so that the peer gets a reset, whatever was read."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def hang(self):
        """Until the client gives up or the test ends."""
        while not self.server.ended.is_set():
            if select.select([self._sock], [], [], 0.05)[0] and not self._sock.recv(65_536):
                raise Gone
        raise Gone


class Script(Listener):
    """Steps are used up one by one; the last one stays. ``seen`` are all requests."""

    def __init__(self, *steps, host="127.0.0.1", certificate=None):
        super().__init__(host=host, certificate=certificate)
        self.steps = list(steps)
        self.seen = []

    def serve(self, sock):
        wire = Wire(sock, self)
        while self._has_request(sock):
            self._next_step()(wire)

    def _has_request(self, sock):
        while not self.ended.is_set():
            if getattr(sock, "pending", lambda: 0)() or select.select([sock], [], [], 0.02)[0]:
                return self._tls is not None or bool(sock.recv(1, socket.MSG_PEEK))
        return False

    def _next_step(self):
        with self._lock:
            return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]


def wait_for_requests(server, count):
    """Return when a server has seen so many requests."""
    until = time.monotonic() + 10
    while len(server.seen) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def wait_for_closing(server):
    """Return when a server has closed all its connections."""
    until = time.monotonic() + 10
    while server.open_now:
        assert time.monotonic() < until
        time.sleep(0.01)


# --- steps


def message(body=b"{}", status=200, crc=None, **headers):
    """An answer as it goes over the wire; names in ``headers`` with underscores."""
    crc = crc32(body) if crc is None else crc
    fields = {
        "content-type": "application/x-amz-json-1.0",
        "content-length": str(len(body)),
        "x-amz-crc32": str(crc),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


def answer(content=OK, status=200, **headers):
    """Read the request, then answer it in JSON."""

    def step(wire):
        wire.read()
        wire.write(message(json.dumps(content).encode(), status, **headers))

    return step


def refuse(code, text="", status=400, **headers):
    """An error of DynamoDB's."""
    content = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": text}
    return answer(content, status, **headers)


def raw(data, *, then_close=False):
    """Read the request, then write these bytes."""

    def step(wire):
        wire.read()
        wire.write(data)
        if then_close:
            raise Gone

    return step


def dripping(data, seconds):
    """Answer byte by byte over so many seconds."""

    def step(wire):
        wire.read()
        for index in range(len(data)):
            wire.write(data[index : index + 1])
            if wire.server.ended.wait(seconds / len(data)):
                raise Gone

    return step


def echo(wire):
    """Say back what was asked."""
    _, body = wire.read()
    wire.write(message(body, x_amzn_requestid="scripted"))


def echo_and_close(wire):
    """Close the connection after the answer without having said so."""
    echo(wire)
    raise Gone


def hang_before_reading(wire):
    while not wire.server.ended.wait(0.02):
        pass
    raise Gone


def hang_after_reading(wire):
    wire.read()
    wire.hang()


def reset_before_reading(wire):
    wire.reset()


def reset_after_reading(wire):
    wire.read()
    wire.reset()


def close_after_reading(wire):
    wire.read()
    raise Gone


@contextmanager
def full_listener():
    """The URL of a listener whose queue is full: what comes is dropped, as on a dead route."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as fillers:
        address = listener.getsockname()
        for _ in range(8):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}"

"""A real forward proxy, small: tunnels (CONNECT) and plain requests with a whole URL."""

from __future__ import annotations

import select
import socket
import threading
from base64 import b64encode
from urllib.parse import urlsplit

from tests.integration.transport.listening import Gone, Listener


class Relay(Listener):
    """Stands between two others."""

    def __init__(self, certificate=None):
        super().__init__(name="localhost", certificate=certificate)

    def recv(self, sock):
        """What comes next; raises Gone at the end of the connection or of the test."""
        while not self.ended.is_set():
            if getattr(sock, "pending", lambda: 0)() or select.select([sock], [], [], 0.02)[0]:
                piece = sock.recv(65_536)
                if not piece:
                    raise Gone
                return piece
        raise Gone

    def read_message(self, sock):
        """First line, headers and the whole as bytes."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.recv(sock)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.split(":", 1) for line in lines[1:])
        headers = {name.lower(): value.strip() for name, value in pairs}
        while len(body) < int(headers.get("content-length", 0)):
            body += self.recv(sock)
        return lines, headers, body

    def pump(self, one, other, most=None):
        """Both ways until one end closes, or after so many bytes from ``other``."""
        passed = 0
        while not self.ended.is_set():
            buffered = [sock for sock in (one, other) if getattr(sock, "pending", lambda: 0)()]
            for sock in buffered or select.select([one, other], [], [], 0.02)[0]:
                piece = sock.recv(65_536)
                if not piece:
                    return
                if sock is one:
                    other.sendall(piece)
                    continue
                rest = len(piece) if most is None else most - passed
                one.sendall(piece[:rest])
                passed += len(piece)
                if most is not None and passed >= most:
                    return


class TlsFront(Relay):
    """Takes off TLS before a server that speaks none."""

    def __init__(self, url, certificate):
        super().__init__(certificate)
        parts = urlsplit(url)
        self._behind = (parts.hostname, parts.port)

    def serve(self, sock):
        with socket.create_connection(self._behind) as behind:
            self.pump(sock, behind)


HOSTS = {"dynamodb.test": "127.0.0.1", "localhost.": "127.0.0.1"}


class ForwardProxy(Relay):
    """``seen`` are methods and targets; names in ``HOSTS`` are known to the proxy only.

    It answers ``says`` instead of passing on, hangs as long as ``held`` is not set, and breaks
    off after ``cut_after`` bytes of what comes back.
    """

    def __init__(self, *, auth=None):
        super().__init__()
        self._auth = auth and "Basic " + b64encode(auth.encode()).decode()
        self.seen = []
        self.says = None
        self.cut_after = None
        self.held = threading.Event()
        self.held.set()

    def with_user(self, user):
        return self.url.replace("://", f"://{user}@")

    def serve(self, sock):
        while True:
            lines, headers, body = self.read_message(sock)
            method, target, _ = lines[0].split(" ")
            self.seen.append((method, target))
            while not self.held.wait(0.02):
                if self.ended.is_set():
                    raise Gone
            if self._auth and headers.get("proxy-authorization") != self._auth:
                self._refuse(sock, "407 Proxy Authentication Required")
            elif self.says is not None:
                self._refuse(sock, self.says)
            elif method == "CONNECT":
                return self._tunnel(sock, target)
            else:
                self._pass_on(sock, target, lines, body)

    def _refuse(self, sock, status):
        page = b"<html>the proxy says no</html>"
        sock.sendall(
            f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n"
            "".encode()
            + page
        )

    def _reach(self, sock, name, port):
        try:
            return socket.create_connection((HOSTS.get(name, name), port), 5)
        except OSError:
            self._refuse(sock, "502 Bad Gateway")
            raise Gone from None

    def _tunnel(self, sock, target):
        name, _, port = target.rpartition(":")
        with self._reach(sock, name.strip("[]"), int(port)) as behind:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.pump(sock, behind, self.cut_after)

    def _pass_on(self, sock, target, lines, body):
        parts = urlsplit(target)
        start = f"POST {parts.path} HTTP/1.1"
        kept = [line for line in lines[1:] if not line.lower().startswith("proxy-")]
        message = "\r\n".join([start, *kept, "", ""]).encode() + body
        with self._reach(sock, parts.hostname, parts.port) as behind:
            behind.sendall(message)
            answer, _, content = self.read_message(behind)
        whole = "\r\n".join([*answer, "", ""]).encode() + content
        sock.sendall(whole[: self.cut_after])
        if self.cut_after is not None:
            raise Gone

"""A server on a real socket: each connection in a thread."""

from __future__ import annotations

import select
import socket
import ssl
import threading


class Gone(Exception):
    """The other end has closed the connection, or this one wants it closed."""


class Listener:
    """Takes connections; subclasses say what happens on one. ``name`` is what its URL says."""

    def __init__(self, *, host="127.0.0.1", name=None, certificate=None):
        self.connections = 0
        self.open_now = 0
        self.most_open = 0
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self.port = self._listener.getsockname()[1]
        scheme = "https" if certificate is not None else "http"
        self.url = f"{scheme}://{name or (f'[{host}]' if ':' in host else host)}:{self.port}"

    def serve(self, sock):
        raise NotImplementedError

    def __enter__(self):
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self._thread.join()
        self._listener.close()

    def _accept(self):
        threads = []
        while not self.ended.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                sock, _ = self._listener.accept()
                with self._lock:
                    self.connections += 1
                threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, sock):
        with self._lock:
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            self.serve(sock)
        except (Gone, OSError):
            pass
        finally:
            sock.close()
            with self._lock:
                self.open_now -= 1

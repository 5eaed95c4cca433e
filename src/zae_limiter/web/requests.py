"""The request that key and cost functions of the ASGI and WSGI middleware get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class WebRequest:
    """A request of an ASGI or WSGI server: method, path, headers and the client's address.

    ``headers`` maps lower-case names to values. For a repeated header it holds the first value, as
    in Starlette, or all values joined by commas if ``joins_headers`` (WSGI). ``native`` is the
    server's own mapping: the scope or the environ.
    """

    __slots__ = ("_header_list", "client", "headers", "joins_headers", "method", "native", "path")

    def __init__(
        self,
        native: Mapping[str, Any],
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]],
        client: str | None,
        *,
        joins_headers: bool = False,
    ) -> None:
        self.native = native
        self.method = method
        self.path = path
        self.client = client
        self.joins_headers = joins_headers
        self._header_list = [(name.lower(), value) for name, value in headers]
        self.headers = dict(reversed(self._header_list))  # so the first value of a name remains

    def header_values(self, name: str) -> list[str]:
        """Return every value of a header, in the order of the request."""
        wanted = name.lower()
        return [value for each, value in self._header_list if each == wanted]

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any]) -> WebRequest:
        """Return the request of an ASGI scope."""
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
        client = scope.get("client")
        return cls(scope, scope["method"], scope["path"], headers, client[0] if client else None)

    @classmethod
    def of_environ(cls, environ: Mapping[str, Any]) -> WebRequest:
        """Return the request of a WSGI environ."""
        headers = [
            (name.removeprefix("HTTP_").replace("_", "-"), str(value))
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        ]
        method, path = environ.get("REQUEST_METHOD", "GET"), environ.get("PATH_INFO", "")
        client = environ.get("REMOTE_ADDR") or None  # the address is empty on a unix socket
        return cls(environ, method, path, headers, client, joins_headers=True)

"""Endpoints, proxies and responses: the values that both transports work with."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.store_errors import NoAnswer, NotSent

# The limit of one event loop: DynamoDB needs far fewer, and a process has more file descriptors.
MAX_CONNECTIONS = 256
# Servers and proxies keep idle connections for longer. If one of them closes a connection just as
# it is used again, the outcome of that write is unknown.
IDLE_S = 10.0
HOST = re.compile(r"[\w.:%-]+")


class Endpoint(NamedTuple):
    """A server, as named by a URL."""

    scheme: str
    host: str
    port: int
    path: str = "/"

    @property
    def authority(self) -> str:
        """``host:port``, as CONNECT requires it."""
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def host_header(self) -> str:
        default_port = 443 if self.scheme == "https" else 80
        return bracketed(self.host) if self.port == default_port else self.authority

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.path}"

    @property
    def tls_name(self) -> str:
        """The host as certificates spell it: without a trailing dot or an IPv6 zone."""
        return self.host.partition("%")[0].rstrip(".")

    @property
    def is_local(self) -> bool:
        """Whether the endpoint can only be a server on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        if not self.host[:1].isdigit() and ":" not in self.host:
            return False
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


class Proxy(NamedTuple):
    """An HTTP proxy; ``authorization`` is the value of the Proxy-Authorization header, if any."""

    host: str
    port: int
    authorization: str | None = None

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return f"http://{bracketed(self.host)}:{self.port}"

    @property
    def authorization_header(self) -> str:
        """The header line with the credentials; empty if the proxy needs none."""
        if self.authorization is None:
            return ""
        return f"Proxy-Authorization: {self.authorization}\r\n"

    def __repr__(self) -> str:
        return f"Proxy({self.url})"


class Destination(NamedTuple):
    """The server that a connection leads to; only requests to an equal one may reuse it.

    ``ca_bundle`` is a file of trusted certificates; None stands for those of the system.
    """

    endpoint: Endpoint
    proxy: Proxy | None = None
    ca_bundle: str | None = None

    @property
    def is_tls(self) -> bool:
        return self.endpoint.scheme == "https"

    @property
    def is_tunnelled(self) -> bool:
        """Whether the proxy only passes bytes on; TLS is spoken with the endpoint."""
        return self.proxy is not None and self.is_tls

    @property
    def is_forwarded(self) -> bool:
        """Whether the proxy reads requests and responses itself."""
        return self.proxy is not None and not self.is_tls

    @property
    def first_hop(self) -> tuple[str, int]:
        """Host and port to connect to."""
        hop = self.proxy or self.endpoint
        return hop.host, hop.port

    def __str__(self) -> str:
        through = f" through the proxy {self.proxy.url}" if self.proxy else ""
        return f"{self.endpoint.url}{through}"


@dataclass(slots=True)
class HttpResponse:
    """A response; its ``headers`` have lower-case names.

    The server answered between two readings of the boot clock: ``sent_ns``, just before the first
    byte of the request was sent, and ``received_ns``, when the head of the response had arrived.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    sent_ns: int = 0
    received_ns: int = 0


def parse_endpoint(url: str) -> Endpoint:
    """Parse ``http(s)://HOST[:PORT][/PATH]``; raises ValidationError for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_endpoint(url) from None
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(host):
        raise _bad_endpoint(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValidationError(
            "endpoint_url", host, "must not contain a user, a query or a fragment"
        )
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    path = quote(parts.path, safe="/~%") or "/"
    return Endpoint(parts.scheme, host, port, path)


def _bad_endpoint(url: str) -> ValidationError:
    shown = url if "@" not in url else "…"  # there may be a password before the @
    return ValidationError("endpoint_url", shown, "must be like http://localhost:8000")


def bracketed(host: str) -> str:
    """Return a host as URLs spell it: IPv6 addresses are in brackets."""
    return f"[{host}]" if ":" in host else host


def no_connection(destination: Destination, error: BaseException) -> NotSent:
    """Return the error for a failure before the first byte of a request was sent."""
    advice = ""
    if destination.proxy is not None:
        host = destination.endpoint.host
        advice = f"; check the proxy, or set NO_PROXY={host} to go without it"
    return NotSent(f"no connection to {destination}: {_reason(error)}{advice}", cause=error)


def no_answer(
    destination: Destination, error: BaseException, *, was_idle: bool = False
) -> NoAnswer:
    """Return the error for a failure after the first byte of a request was sent.

    ``was_idle`` says that the connection had been used before, and no byte of an answer came.
    """
    message = f"no answer from {destination}: {_reason(error)}"
    closed = _is_closed(error)
    return NoAnswer(message, closed=closed, closed_idle=was_idle and closed, cause=error)


def _is_closed(error: BaseException) -> bool:
    """Return whether the error is that of a connection which the other side has closed."""
    return isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ConnectionRefusedError):  # asyncio's text does not say so
        return "the connection was refused"
    return str(error) or type(error).__name__

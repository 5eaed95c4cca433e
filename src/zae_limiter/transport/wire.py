"""What the two transports have in common: where a request goes, what it and its answer are."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from zae_limiter.exceptions import ValidationError
from zae_limiter.transport.errors import NoAnswer, NotSent

MAX_CONNECTIONS = 256
# Well below what servers allow: one that closes an idle connection just as we use it
# leaves a write whose fate nobody knows.
IDLE_S = 10.0
_HOST = re.compile(r"[\w.:%-]+")


class Endpoint(NamedTuple):
    """Where to connect, and how to call it in the Host header."""

    scheme: str
    host: str
    port: int
    path: str = "/"

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.path}"

    @property
    def is_local(self) -> bool:
        """Whether it can only be a server on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Request(NamedTuple):
    """``message`` is the whole of it, as it goes over the wire."""

    endpoint: Endpoint
    message: bytes


class RawAnswer(NamedTuple):
    """``headers`` have lower-case names."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_endpoint(url: str) -> Endpoint:
    """Raises ValidationError unless it is http(s)://HOST[:PORT][/PATH]."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad(url) from None
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host):
        raise _bad(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValidationError(
            "endpoint_url", host, "must not contain a user, a query or a fragment"
        )
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    path = quote(parts.path, safe="/~%") or "/"
    return Endpoint(parts.scheme, host, port, path)


def _bad(url: str) -> ValidationError:
    shown = url if "@" not in url else "…"  # there may be a password before it
    return ValidationError("endpoint_url", shown, "must be like http://localhost:8000")


def no_connection(endpoint: Endpoint, error: BaseException) -> NotSent:
    """What is raised when nothing can have been sent."""
    hint = ""
    if endpoint.scheme == "https" and {"HTTPS_PROXY", "https_proxy"} & os.environ.keys():
        hint = "; HTTPS_PROXY is not used, the connection must be possible without it"
    return NotSent(f"no connection to {endpoint.url}: {_words(error)}{hint}", cause=error)


def no_answer(endpoint: Endpoint, error: BaseException) -> NoAnswer:
    """What is raised from the first byte on."""
    return NoAnswer(f"no answer from {endpoint.url}: {_words(error)}", cause=error)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(error) or type(error).__name__

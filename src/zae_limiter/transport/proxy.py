"""HTTP proxies: which one applies, how it is spoken to, and what its refusals mean.

An https endpoint is reached through a tunnel (CONNECT), an http endpoint by requests that name the
whole URL. Only ``http://`` proxies are supported, with no or Basic authentication.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from contextlib import suppress
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from zae_limiter.exceptions import PermissionDenied, ValidationError
from zae_limiter.transport.messages import HOST, Destination, Endpoint, HttpResponse, Proxy
from zae_limiter.transport.response_reader import MalformedResponse, ResponseReader


def find_proxy(endpoint: Endpoint) -> Proxy | None:
    """Return the proxy to use by botocore's rules: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``.

    Unlike botocore, a server on a loopback address is never reached through a proxy.
    """
    if endpoint.is_local or not _may_have_proxies():
        return None
    with suppress(TypeError, OSError):  # unreadable system settings are ignored, as by botocore
        if proxy_bypass(endpoint.host_header):
            return None
    url = getproxies().get(endpoint.scheme)
    return _parse_proxy(url, endpoint) if url else None


def _may_have_proxies() -> bool:
    """Return whether there may be a proxy: macOS and Windows also have system settings."""
    if not sys.platform.startswith("linux"):
        return True
    return any(name.lower().endswith("_proxy") and value for name, value in os.environ.items())


def _parse_proxy(url: str, endpoint: Endpoint) -> Proxy:
    """Parse the URL of a proxy; ``HOST:PORT`` and ``//HOST:PORT`` mean http, as for botocore."""
    if "://" not in url:
        url = "http://" + url.removeprefix("//")
    try:
        parts = urlsplit(url)
        port = 80 if parts.port is None else parts.port
        authorization = _basic_auth(parts.username, parts.password)
    except ValueError:  # the port is not a number, or the user is not ASCII
        raise _unusable_proxy(endpoint) from None
    host = parts.hostname or ""
    if parts.scheme != "http" or not HOST.fullmatch(host) or port == 0:
        raise _unusable_proxy(endpoint)
    return Proxy(host, port, authorization)


def _basic_auth(user: str | None, password: str | None) -> str | None:
    if not user:
        return None
    credentials = f"{unquote(user)}:{unquote(password or '')}"
    return "Basic " + b64encode(credentials.encode("ascii")).decode()


def _unusable_proxy(endpoint: Endpoint) -> ValidationError:
    return ValidationError(
        f"{endpoint.scheme.upper()}_PROXY",
        "…",  # there may be a password in it
        "must be like http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, in ASCII; proxies that "
        "speak TLS (https://, with or without a client certificate) or SOCKS are not supported: "
        f"use the proxy's http:// port, or set NO_PROXY={endpoint.host} to go without it",
    )


def tunnel_request(destination: Destination) -> bytes:
    """Return the message that asks the proxy for a tunnel to the endpoint."""
    assert destination.proxy is not None
    authority = destination.endpoint.authority
    return (
        f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
        f"{destination.proxy.authorization_header}\r\n"
    ).encode()


class TunnelReader:
    """Reads the proxy's response to CONNECT, piece by piece."""

    def __init__(self, destination: Destination) -> None:
        assert destination.proxy is not None
        self._proxy = destination.proxy
        self._response = ResponseReader()

    def feed(self, piece: bytes) -> bool:
        """Return True once the tunnel is open; raises OSError or PermissionDenied if refused."""
        if not piece:
            raise ConnectionError("the proxy closed the connection before there was a tunnel")
        try:
            status = self._response.feed_head(piece)
        except MalformedResponse as error:
            raise ConnectionError(f"the proxy did not answer CONNECT in HTTP: {error}") from error
        if status is None:
            return False
        if status == 407:
            raise credentials_refused(self._proxy)
        if not 200 <= status < 300:
            raise ConnectionError(f"the proxy refused a tunnel (status {status})")
        if self._response.has_more:  # in TLS the client speaks first, so nothing may follow yet
            raise ConnectionError("the proxy sent more than its consent to a tunnel")
        return True


def check_forwarded(response: HttpResponse, destination: Destination) -> None:
    """Raise PermissionDenied if a forwarding proxy has refused the request itself."""
    proxy, host = destination.proxy, destination.endpoint.host
    if proxy is None or not destination.is_forwarded:
        return
    if response.status == 407:
        raise credentials_refused(proxy)
    # DynamoDB's own refusals are JSON.
    if response.status == 403 and not response.body.lstrip().startswith(b"{"):
        raise PermissionDenied(
            f"the proxy {proxy.url} refused to pass the request on to {host} (403); ask for "
            f"access, or set NO_PROXY={host} to go without it"
        )


def credentials_refused(proxy: Proxy) -> PermissionDenied:
    """Return the error for status 407; the endpoint has not seen the request."""
    return PermissionDenied(
        f"the proxy {proxy.url} requires a user and a password (407), or refused the given ones; "
        "put them into the URL of the proxy: http://USER:PASSWORD@HOST:PORT, with special "
        "characters like %40 (Basic authentication; NTLM, Kerberos and Digest are not supported)"
    )

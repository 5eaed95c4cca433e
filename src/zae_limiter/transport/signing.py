"""AWS Signature Version 4 for POST requests to DynamoDB."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from zae_limiter._version import __version__
from zae_limiter.transport.messages import Destination

CONTENT_TYPE = "application/x-amz-json-1.0"
SERVICE = "dynamodb"
TARGET = "DynamoDB_20120810."
USER_AGENT = f"zae-limiter/{__version__}"
_SIGNED = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_WITH_TOKEN = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Credentials(NamedTuple):
    """An AWS access key, which its repr does not show."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    """The signing key of one day, and the texts that its credentials add to every request."""

    credentials: Credentials
    day: str
    scope: str
    signed_headers: str
    token_line: str  # of the text that is signed; empty without a session token
    headers: str  # the session token, if there is one, and the authorization up to the signature
    prepared: hmac.HMAC

    def signature(self, text: str) -> str:
        signing = self.prepared.copy()
        signing.update(text.encode())
        return signing.hexdigest()

    def __repr__(self) -> str:
        return "_Key(…)"


class Signer:
    """Builds signed requests to one endpoint.

    A proxy that forwards requests needs the whole URL in the first line, and its own credentials;
    neither is part of the signature. The key of the day is cached; it is replaced as a whole, so
    that threads need no lock.
    """

    def __init__(self, destination: Destination, region: str) -> None:
        endpoint, proxy = destination.endpoint, destination.proxy
        self._path, self._host = endpoint.path, endpoint.host_header
        target, proxy_header = endpoint.path, ""
        if proxy is not None and destination.is_forwarded:
            target, proxy_header = endpoint.url, proxy.authorization_header
        self._head = (
            f"POST {target} HTTP/1.1\r\nHost: {self._host}\r\n{proxy_header}"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            f"User-Agent: {USER_AGENT}\r\nAccept-Encoding: identity\r\n"
        )
        self._signed_head = (
            f"POST\n{self._path}\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:"
        )
        self._region = region
        self._key: _Key | None = None

    def message(
        self, operation: str, body: bytes, credentials: Credentials, epoch_s: float
    ) -> bytes:
        """Build the whole request, as it is sent."""
        stamp = _stamp(int(epoch_s))
        key = self._key
        if key is None or key.day != stamp[:8] or key.credentials != credentials:
            key = self._key = self._new_key(credentials, stamp[:8])
        target = TARGET + operation
        canonical = (
            f"{self._signed_head}{stamp}\n{key.token_line}x-amz-target:{target}\n\n"
            f"{key.signed_headers}\n{sha256(body).hexdigest()}"
        )
        signature = key.signature(
            f"AWS4-HMAC-SHA256\n{stamp}\n{key.scope}\n{sha256(canonical.encode()).hexdigest()}"
        )
        head = (
            f"{self._head}X-Amz-Date: {stamp}\r\nX-Amz-Target: {target}\r\n"
            f"{key.headers}{signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _new_key(self, credentials: Credentials, day: str) -> _Key:
        token = credentials.token
        key = signing_key(credentials, day, self._region, SERVICE)
        scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
        signed_headers = _SIGNED if token is None else _SIGNED_WITH_TOKEN
        token_header = "" if token is None else f"X-Amz-Security-Token: {token}\r\n"
        return _Key(
            credentials=credentials,
            day=day,
            scope=scope,
            signed_headers=signed_headers,
            token_line="" if token is None else f"x-amz-security-token:{token}\n",
            headers=(
                f"{token_header}Authorization: AWS4-HMAC-SHA256 "
                f"Credential={credentials.access_key}/{scope}, "
                f"SignedHeaders={signed_headers}, Signature="
            ),
            prepared=hmac.new(key, digestmod=sha256),
        )


@lru_cache(maxsize=2)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


def signing_key(credentials: Credentials, day: str, region: str, service: str) -> bytes:
    """Return the key of a day, with which the requests to a service of a region are signed."""
    value = ("AWS4" + credentials.secret_key).encode()
    for part in (day, region, service, "aws4_request"):
        value = hmac.digest(value, part.encode(), "sha256")
    return value

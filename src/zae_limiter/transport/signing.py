"""AWS Signature Version 4 for POST requests to DynamoDB."""

from __future__ import annotations

import hmac
import time
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


class _Key(NamedTuple):
    """The HMAC of a signing key, and the credentials and the day that the key is derived from."""

    credentials: Credentials
    day: str
    scope: str
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
        self._region = region
        self._key: _Key | None = None

    def message(
        self, operation: str, body: bytes, credentials: Credentials, epoch_s: float
    ) -> bytes:
        """Build the whole request, as it is sent."""
        stamp = _stamp(int(epoch_s))
        key = self._signing_key(credentials, stamp[:8])
        target = TARGET + operation
        signed, token_line, token_header = _SIGNED, "", ""
        if credentials.token is not None:
            signed = _SIGNED_WITH_TOKEN
            token_line = f"x-amz-security-token:{credentials.token}\n"
            token_header = f"X-Amz-Security-Token: {credentials.token}\r\n"
        canonical = (
            f"POST\n{self._path}\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\n"
            f"x-amz-date:{stamp}\n{token_line}x-amz-target:{target}\n\n"
            f"{signed}\n{sha256(body).hexdigest()}"
        )
        to_sign = (
            f"AWS4-HMAC-SHA256\n{stamp}\n{key.scope}\n{sha256(canonical.encode()).hexdigest()}"
        )
        signature = key.signature(to_sign)
        head = (
            f"{self._head}X-Amz-Date: {stamp}\r\nX-Amz-Target: {target}\r\n{token_header}"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{key.scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _signing_key(self, credentials: Credentials, day: str) -> _Key:
        key = self._key
        if key is None or key.day != day or key.credentials != credentials:
            prepared = hmac.new(
                signing_key(credentials, day, self._region, SERVICE), digestmod=sha256
            )
            scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
            key = self._key = _Key(credentials, day, scope, prepared)
        return key


@lru_cache(maxsize=2)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


def signing_key(credentials: Credentials, day: str, region: str, service: str) -> bytes:
    """Return the key of a day, with which the requests to a service of a region are signed."""
    value = ("AWS4" + credentials.secret_key).encode()
    for part in (day, region, service, "aws4_request"):
        value = hmac.digest(value, part.encode(), "sha256")
    return value

"""AWS Signature Version 4 for POST requests to DynamoDB."""

from __future__ import annotations

import time
from hashlib import sha256
from hmac import digest
from typing import NamedTuple

from zae_limiter._version import __version__
from zae_limiter.transport.wire import Endpoint

CONTENT_TYPE = "application/x-amz-json-1.0"
SERVICE = "dynamodb"
TARGET = "DynamoDB_20120810."
USER_AGENT = f"zae-limiter/{__version__}"
_SIGNED = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_WITH_TOKEN = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Credentials(NamedTuple):
    """Never shown."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


class _Key(NamedTuple):
    """A signing key and what it is good for."""

    credentials: Credentials
    day: str
    scope: str
    value: bytes

    def __repr__(self) -> str:
        return "_Key(…)"


class Signer:
    """Writes the heads of requests to one endpoint; keeps the key of the day.

    What it keeps is replaced as a whole, so that threads need no lock.
    """

    def __init__(self, endpoint: Endpoint, region: str) -> None:
        host = endpoint.host_header
        self._region = region
        self._canonical = (
            f"POST\n{endpoint.path}\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:"
        )
        self._head = (
            f"POST {endpoint.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"User-Agent: {USER_AGENT}\r\nAccept-Encoding: identity\r\nContent-Length: "
        )
        self._stamp = (-1, "")
        self._key: _Key | None = None

    def message(
        self, operation: str, body: bytes, credentials: Credentials, epoch_s: float
    ) -> bytes:
        """The whole request, signed."""
        stamp = self._amz_date(int(epoch_s))
        key = self._signing_key(credentials, stamp[:8])
        signed, token_line, token_header = _SIGNED, "", ""
        if credentials.token is not None:
            signed = _SIGNED_WITH_TOKEN
            token_line = f"x-amz-security-token:{credentials.token}\n"
            token_header = f"\r\nX-Amz-Security-Token: {credentials.token}"
        canonical = (
            f"{self._canonical}{stamp}\n{token_line}x-amz-target:{TARGET}{operation}\n\n"
            f"{signed}\n{sha256(body).hexdigest()}"
        )
        digested = sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{key.scope}\n{digested}"
        signature = digest(key.value, to_sign.encode(), "sha256").hex()
        head = (
            f"{self._head}{len(body)}\r\nX-Amz-Date: {stamp}\r\n"
            f"X-Amz-Target: {TARGET}{operation}{token_header}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{key.scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n\r\n"
        )
        return head.encode() + body

    def _amz_date(self, epoch_s: int) -> str:
        second, text = self._stamp
        if second != epoch_s:
            text = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))
            self._stamp = (epoch_s, text)
        return text

    def _signing_key(self, credentials: Credentials, day: str) -> _Key:
        key = self._key
        if key is None or key.day != day or key.credentials != credentials:
            value = ("AWS4" + credentials.secret_key).encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                value = digest(value, part.encode(), "sha256")
            scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
            key = self._key = _Key(credentials, day, scope, value)
        return key

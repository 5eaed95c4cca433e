"""AWS Signature Version 4 for POST requests to DynamoDB."""

from __future__ import annotations

import time
from hashlib import sha256
from hmac import digest
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter._version import __version__
from zae_limiter.transport.messages import Destination

if TYPE_CHECKING:
    from hashlib import _Hash

CONTENT_TYPE = "application/x-amz-json-1.0"
SERVICE = "dynamodb"
TARGET = "DynamoDB_20120810."
USER_AGENT = f"zae-limiter/{__version__}"
_BLOCK = 64  # of SHA-256
_SIGNED = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_WITH_TOKEN = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Credentials(NamedTuple):
    """An AWS access key. Its repr shows nothing of it."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


class _Key(NamedTuple):
    """A signing key, and the credentials and the day it is derived from."""

    credentials: Credentials
    day: str
    scope: str
    value: bytes

    def __repr__(self) -> str:
        return "_Key(…)"


class _SignedForm(NamedTuple):
    """What the requests of one operation that are signed within the same second share."""

    credentials: Credentials
    second: int
    canonical: bytes  # without the digest of the body
    to_sign: bytes  # without the digest of that
    head: bytes  # up to the signature
    inner: _Hash  # the two hashes of HMAC, after the key
    outer: _Hash

    def __repr__(self) -> str:
        return "_SignedForm(…)"


class Signer:
    """Builds signed requests to one endpoint.

    A proxy that forwards requests needs the whole URL in the first line, and its own credentials;
    neither is part of the signature.

    The key of the day and the forms of the second are cached. Each cache entry is replaced as a
    whole, so that threads need no lock.
    """

    def __init__(self, destination: Destination, region: str) -> None:
        endpoint, proxy = destination.endpoint, destination.proxy
        host = endpoint.host_header
        target, proxy_header = endpoint.path, ""
        if proxy is not None and destination.is_forwarded:
            target, proxy_header = endpoint.url, proxy.authorization_header
        self._region = region
        self._canonical = (
            f"POST\n{endpoint.path}\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:"
        )
        self._head = (
            f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{proxy_header}"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            f"User-Agent: {USER_AGENT}\r\nAccept-Encoding: identity\r\nX-Amz-Date: "
        )
        self._forms: dict[str, _SignedForm] = {}
        self._key: _Key | None = None

    def message(
        self, operation: str, body: bytes, credentials: Credentials, epoch_s: float
    ) -> bytes:
        """Build the whole request, as it is sent."""
        form, second = self._forms.get(operation), int(epoch_s)
        if form is None or form.second != second or form.credentials is not credentials:
            form = self._forms[operation] = self._form(operation, credentials, second)
        digest = sha256(form.canonical + sha256(body).hexdigest().encode()).hexdigest()
        inner, outer = form.inner.copy(), form.outer.copy()
        inner.update(form.to_sign + digest.encode())
        outer.update(inner.digest())
        signature = outer.hexdigest().encode()
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (form.head, signature, len(body), body)

    def _form(self, operation: str, credentials: Credentials, second: int) -> _SignedForm:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        key = self._signing_key(credentials, stamp[:8])
        signed, token_line, token_header = _SIGNED, "", ""
        if credentials.token is not None:
            signed = _SIGNED_WITH_TOKEN
            token_line = f"x-amz-security-token:{credentials.token}\n"
            token_header = f"\r\nX-Amz-Security-Token: {credentials.token}"
        canonical = (
            f"{self._canonical}{stamp}\n{token_line}x-amz-target:{TARGET}{operation}\n\n{signed}\n"
        )
        head = (
            f"{self._head}{stamp}\r\nX-Amz-Target: {TARGET}{operation}{token_header}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{key.scope}, "
            f"SignedHeaders={signed}, Signature="
        )
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{key.scope}\n"
        padded = key.value.ljust(_BLOCK, b"\0")
        inner, outer = (sha256(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))
        return _SignedForm(
            credentials,
            second,
            canonical.encode(),
            to_sign.encode(),
            head.encode(),
            inner,
            outer,
        )

    def _signing_key(self, credentials: Credentials, day: str) -> _Key:
        key = self._key
        if key is None or key.day != day or key.credentials != credentials:
            value = signing_key(credentials, day, self._region, SERVICE)
            scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
            key = self._key = _Key(credentials, day, scope, value)
        return key


def signing_key(credentials: Credentials, day: str, region: str, service: str) -> bytes:
    """Return the key of a day, with which the requests to a service of a region are signed."""
    value = ("AWS4" + credentials.secret_key).encode()
    for part in (day, region, service, "aws4_request"):
        value = digest(value, part.encode(), "sha256")
    return value

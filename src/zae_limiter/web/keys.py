"""Key functions, which return the entity that a request is charged to."""

from __future__ import annotations

import hmac
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final

from zae_limiter.exceptions import ValidationError
from zae_limiter.web.requests import WebRequest

_SECRET_VARIABLE: Final = "ZAEL_KEY_SECRET"
_DIGEST_BYTES: Final = 16  # with 128 bits, keys never collide, and ids stay short
_SCHEMES: Final = frozenset({"apikey", "basic", "bearer", "token"})  # a scheme alone is not a key
# The blanks that HTTP allows around a value. `str.strip` would also cut off bytes of UTF-8.
_SPACE: Final = " \t"


class RefusedKey(Exception):
    """The key of a request is missing or unusable; the request is answered with ``status``.

    The message is for the client: it names neither entities nor limits.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(message)


def client_address(request: Any) -> str | None:
    """Return the address of the client as the server sees it. This key works in every framework.

    A client with IPv6 has a whole network of 2**64 addresses, so its key is that network, such as
    ``2001:db8:1:2::/64``. An IPv4 address in the form of IPv6 is converted to IPv4.

    Behind a proxy, this is the address of the proxy, unless the server is configured to trust the
    proxy's headers. A server on a unix socket knows no address, so the result is None.
    """
    client = getattr(request, "client", None)
    if client is None:  # Django
        client = getattr(request, "META", {}).get("REMOTE_ADDR")
    address = client if client is None or isinstance(client, str) else client.host
    return _network(address) if address else None


def _network(address: str) -> str:
    try:
        parsed = IPv6Address(address)
    except AddressValueError:  # an IPv4 address, or a name that the server has set
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    first = IPv6Address(int(parsed) >> 64 << 64)
    return f"{first}/64"


def header(name: str, *, allow_comma: bool = False) -> Callable[[Any], str | None]:
    """Return a key function, whose key is the value of a header; None if the header is missing.

    The value becomes an entity id that operators see; for a secret use ``hashed_header``. For an
    ``Authorization`` header, the key is the credentials without their scheme. Credentials with a
    space inside, and Basic credentials that are not base64, are answered by 400: applications read
    such headers in different ways, and each form would have a limit of its own.

    If a header comes twice with different values, the request is answered by 400: the application
    might authenticate one value while the other one is charged. WSGI servers and Django join the
    values of a repeated header with commas, so there a value with a comma is answered by 400.
    ``allow_comma=True`` is for keys that contain commas.
    """
    wanted = name.lower()

    def key(request: Any) -> str | None:
        value = _single_value(request, wanted, allow_comma)
        if not value:
            return None
        return _credentials(value) if wanted == "authorization" else value

    return key


def hashed_header(
    name: str, secret: str | bytes | None = None, *, allow_comma: bool = False
) -> Callable[[Any], str | None]:
    """Return a key function, whose key is a digest of a header's value (see ``hashed_key``).

    So operators, logs and the store never see an API key. Everything else works as in ``header``.
    The default secret is the environment variable ``ZAEL_KEY_SECRET``; if there is no secret, a
    ValidationError is raised.
    """
    value_of = header(name, allow_comma=allow_comma)
    used = _secret(secret)

    def key(request: Any) -> str | None:
        value = value_of(request)
        # Servers decode headers as Latin-1. This restores the bytes that the client has sent.
        return None if value is None else _digest(value.encode("latin-1", "replace"), used)

    return key


def hashed_key(value: str, secret: str | bytes | None = None) -> str:
    """Return the entity id that ``hashed_header`` gives to the requests of a key.

    Use it to register the entity of a key, or to set its limits. The id stays the same as long as
    the secret does.
    """
    return _digest(value.encode(), _secret(secret))


def _secret(given: str | bytes | None) -> bytes:
    secret = given or os.environ.get(_SECRET_VARIABLE)
    if not secret:
        raise ValidationError(
            "secret",
            None,
            f"is needed to hash keys: pass secret=, or set {_SECRET_VARIABLE}, the same in every "
            "process and after every restart",
        )
    return secret.encode() if isinstance(secret, str) else secret


def _digest(value: bytes, secret: bytes) -> str:
    return f"key-{hmac.digest(secret, value, 'sha256')[:_DIGEST_BYTES].hex()}"


def _single_value(request: Any, name: str, allow_comma: bool) -> str | None:
    values, are_joined = _values(request, name)
    if not values:
        return None
    is_repeated = any(value != values[0] for value in values)
    if is_repeated or (are_joined and not allow_comma and "," in values[0]):
        raise RefusedKey(400, "key_ambiguous", f"send one {name} header with one value")
    return values[0].strip(_SPACE)


def _values(request: Any, name: str) -> tuple[list[str], bool]:
    """Return all values of a header, and whether the server has joined them into one."""
    if isinstance(request, WebRequest):
        return request.header_values(name), request.joins_headers
    if hasattr(request.headers, "getlist"):  # Starlette, FastAPI
        return request.headers.getlist(name), False
    value = request.headers.get(name)  # Django
    return ([] if value is None else [value]), True


def _credentials(value: str) -> str | None:
    """Return the part after the scheme, in one form for all forms that applications accept.

    Otherwise "Bearer x", "bearer x" and "BEARER\t x" would have a limit each. None if the scheme
    stands alone, as clients with an empty variable send it. Raise RefusedKey for credentials that
    an application might read in another way.
    """
    words = re.split(f"[{_SPACE}]+", value, maxsplit=1)
    scheme, credentials = words[0], words[-1]
    if len(words) == 1 and scheme.lower() in _SCHEMES:
        return None
    if _has_space(scheme) or _has_space(credentials):
        raise _unusable("have no space in them")
    return _basic(credentials) if scheme.lower() == "basic" else credentials


def _has_space(text: str) -> bool:
    """Tell whether ``str.split``, with which applications find credentials, might divide the text.

    Applications decode the text as UTF-8 or as Latin-1. In Latin-1, the bytes 85 and A0 are spaces,
    but inside of a UTF-8 character they are not.
    """
    with suppress(UnicodeError):
        text = text.encode("latin-1").decode()
    return any(character.isspace() for character in text)


def _basic(credentials: str) -> str:
    """Return the one canonical form of Basic credentials, since decoders ignore unused bits."""
    try:
        return b64encode(b64decode(credentials, validate=True)).decode()
    except ValueError:  # most decoders would ignore the characters that are not base64
        raise _unusable("are base64 if their scheme is Basic") from None


def _unusable(rule: str) -> RefusedKey:
    return RefusedKey(400, "key_invalid", f"send an authorization header whose credentials {rule}")

"""Who may call the service: tokens and certificates, their roles and namespaces."""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from zae_limiter.naming import check_namespace
from zae_limiter_service.files import Node, WatchedFile, read_yaml

ANY_NAMESPACE = "*"
MAX_TOKENS = 1_000  # each is compared with the token of a request
MAX_TOKEN = 512  # characters
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TOP = frozenset({"tokens", "certificates"})
_OF_TOKEN = frozenset({"name", "sha256", "role", "namespaces"})
_OF_CERTIFICATE = frozenset({"name", "common_name", "role", "namespaces"})


class Role(StrEnum):
    """The rights of a caller."""

    ACQUIRE = "acquire"  # leases, checks and explanations
    READ = "read"  # checks, explanations, entities, limits, usage, metrics
    MANAGE = "manage"  # everything


# The roles that may call a route.
LEASING = frozenset({Role.ACQUIRE, Role.MANAGE})
LOOKING = frozenset(Role)
READING = frozenset({Role.READ, Role.MANAGE})
MANAGING = frozenset({Role.MANAGE})


class ServiceCaller(NamedTuple):
    """An authenticated caller. ``namespaces`` may be ``*`` for all."""

    name: str
    role: Role
    namespaces: tuple[str, ...]

    def may_enter(self, namespace: str) -> bool:
        return namespace in self.namespaces or ANY_NAMESPACE in self.namespaces


class KnownToken(NamedTuple):
    digest: bytes  # the SHA-256 of the token
    caller: ServiceCaller


class AccessList(NamedTuple):
    """The tokens and certificates of one file."""

    tokens: tuple[KnownToken, ...] = ()
    certificates: dict[str, ServiceCaller] = {}  # noqa: RUF012 - never changed; by common name

    def by_token(self, token: str) -> ServiceCaller | None:
        """Return the caller with this token, in a time that is the same for every token."""
        digest = hashlib.sha256(token.encode()).digest()
        found = None
        for known in self.tokens:
            if hmac.compare_digest(known.digest, digest):
                found = known.caller
        return found


class ServiceAccess:
    """Finds the caller of a request; without authentication ``everybody`` is the caller."""

    def __init__(
        self,
        file: WatchedFile[AccessList] | None,
        *,
        everybody: ServiceCaller | None = None,
        any_certificate: ServiceCaller | None = None,
    ) -> None:
        self.file = file
        self._everybody = everybody
        self._any_certificate = any_certificate

    def caller(self, authorization: str | None, common_name: str | None) -> ServiceCaller | None:
        """Return the caller that a header or a verified certificate names; None if none does."""
        if self._everybody is not None:
            return self._everybody
        known = AccessList() if self.file is None else self.file.current()
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN:
                return None
            return known.by_token(token)
        if common_name is None:
            return None
        return known.certificates.get(common_name, self._any_certificate)


def open_access(
    tokens: Path | None, *, no_auth: bool, has_client_ca: bool, namespace: str
) -> ServiceAccess:
    """Return the access that the options describe.

    With ``has_client_ca`` and without a file, each caller with a certificate of that authority may
    acquire in the namespace of the service.
    """
    if no_auth:
        return ServiceAccess(
            None, everybody=ServiceCaller("anybody", Role.MANAGE, (ANY_NAMESPACE,))
        )
    file = None if tokens is None else WatchedFile(tokens, read_access)
    any_certificate = None
    if has_client_ca and file is None:
        any_certificate = ServiceCaller("certificate", Role.ACQUIRE, (namespace,))
    return ServiceAccess(file, any_certificate=any_certificate)


def read_access(path: Path) -> AccessList:
    """Return the tokens and certificates of a file; raise FileError with the line of a mistake."""
    root = read_yaml(path)
    values = root.mapping(_TOP)
    if not values:
        raise root.error("must have tokens or certificates")
    tokens = [_token(each) for each in values["tokens"].items()] if "tokens" in values else []
    if len(tokens) > MAX_TOKENS:
        raise root.error(f"has more than {MAX_TOKENS} tokens")
    certificates: dict[str, ServiceCaller] = {}
    for each in values["certificates"].items() if "certificates" in values else ():
        found = each.mapping(_OF_CERTIFICATE)
        name = each.require(found, "common_name").text()
        if name in certificates:
            raise each.error(f"the common name {name!r} comes twice")
        certificates[name] = _caller(each, found)
    _refuse_twins(root, tokens)
    return AccessList(tuple(tokens), certificates)


def _token(entry: Node) -> KnownToken:
    values = entry.mapping(_OF_TOKEN)
    digest = entry.require(values, "sha256")
    text = digest.text().lower()
    if not _SHA256.fullmatch(text):
        raise digest.error('sha256 must have 64 hexadecimal digits: printf %s "$TOKEN" | sha256sum')
    return KnownToken(bytes.fromhex(text), _caller(entry, values))


def _caller(entry: Node, values: dict[str, Node]) -> ServiceCaller:
    role = entry.require(values, "role")
    if role.text() not in tuple(Role):
        raise role.error(f"role must be one of {', '.join(Role)}")
    namespaces = []
    for each in entry.require(values, "namespaces").items():
        is_any = each.text() == ANY_NAMESPACE
        namespaces.append(ANY_NAMESPACE if is_any else each.checked(check_namespace))
    return ServiceCaller(entry.require(values, "name").text(), Role(role.text()), tuple(namespaces))


def _refuse_twins(root: Node, tokens: list[KnownToken]) -> None:
    """Refuse a token that stands in the file twice, since its rights would be unclear."""
    digests = [token.digest for token in tokens]
    if len(set(digests)) != len(digests):
        raise root.error("a sha256 comes twice")

"""Rules for ids and names, new ids of namespaces and audit events, and authors of changes."""

from __future__ import annotations

import itertools
import os
import re
from functools import lru_cache
from typing import Any

from zae_limiter.exceptions import InvalidIdentifierError, InvalidNameError, ValidationError

CACHED_CHECKS = 4096  # names that were checked recently; a lookup takes half the time of a check

MAX_ID_LENGTH = 256
# An entity's id is part of sort keys of DynamoDB's indexes, which hold 1,024 bytes. The longest
# text around the id has 20 bytes, in the keys of usage.
MAX_ID_BYTES = 900
MAX_UTF8_BYTES = 4  # of one character
MAX_RESOURCE_LENGTH = 128
MAX_LIMIT_NAME_LENGTH = 64  # part of attribute names, which count for the size of every item
MAX_NAMESPACE_LENGTH = 64
# A cursor names a bucket; the cursor of a listing of all namespaces also names its namespace.
MAX_CURSOR_LENGTH = MAX_NAMESPACE_LENGTH + MAX_ID_LENGTH + MAX_RESOURCE_LENGTH + len("##")
MIN_STACK_LENGTH = 3  # DynamoDB's bound for the name of a table
# Lambda's names have at most 64 characters, and the longest suffix is "-limits-provisioner".
MAX_STACK_LENGTH = 64 - len("-limits-provisioner")

CURRENCY = "@"  # between name and currency of a budget in usage; no limit name contains it
DEFAULT_RESOURCE = "_default_"  # for an entity's limits on all resources without own limits
RESERVED_LIMIT_NAMES = frozenset({"wcu"})  # bookkeeping of the DynamoDB engine in the documents
DEFAULT_NAMESPACE = "default"  # of programs that name none; every store has it
DEFAULT_STACK = "zae-limiter"
RESERVED_NAMESPACE = "_"
# The key of the document with the store's schema version, in the reserved namespace.
VERSION_RECORD = "version"

# These are compiled on first use, since few processes use all of them.
_RESOURCE = r"[A-Za-z0-9][A-Za-z0-9_.\-/:@+]*"
_LIMIT = r"[A-Za-z][A-Za-z0-9_.\-]*"
_NAMESPACE = r"[A-Za-z0-9][A-Za-z0-9_.\-]*"
_STACK = r"[A-Za-z][A-Za-z0-9\-]*"


def usage_name(limit_name: str, currency: str | None) -> str:
    """Return the name under which usage of a limit is counted: ``rpm``, or ``usd@USD`` of a budget.

    Amounts of a budget are billionths of its currency unit. So money and tokens are never added up,
    even if a limit changes its kind, or limits of two resources have one name.
    """
    return limit_name if currency is None else f"{limit_name}{CURRENCY}{currency}"


def check_entity_id(value: object, field: str = "entity_id") -> str:
    """Accept printable text of 1 to 256 characters without '#', not starting with '$'.

    It may have at most 900 bytes of UTF-8, which only matters for characters of four bytes.
    """
    if type(value) is str and _is_plain_id(value):
        return value
    if not isinstance(value, str):
        raise InvalidIdentifierError(field, value, "must be a string")
    if not value or not value.strip():
        raise InvalidIdentifierError(field, value, "must not be empty")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidIdentifierError(field, value, f"must have at most {MAX_ID_LENGTH} characters")
    if "#" in value:
        raise InvalidIdentifierError(field, value, "must not contain '#', the key delimiter")
    if value[0] == "$":
        raise InvalidIdentifierError(field, value, "must not start with '$', used by the audit log")
    if value.isprintable() and not _fits_key(value):
        raise InvalidIdentifierError(
            field, value, f"must take at most {MAX_ID_BYTES} bytes of UTF-8"
        )
    raise InvalidIdentifierError(field, value, "must be printable, without space at either end")


@lru_cache(CACHED_CHECKS)
def _is_plain_id(value: str) -> bool:
    """Tell whether an id follows all rules; cached, since every acquire asks."""
    return (
        0 < len(value) <= MAX_ID_LENGTH
        and "#" not in value
        and value[0] != "$"
        and value.isprintable()
        and value == value.strip()
        and _fits_key(value)
    )


def _fits_key(value: str) -> bool:
    """Tell whether a printable id fits the keys of every store."""
    # Nearly all ids are so short that they need not be encoded.
    return len(value) * MAX_UTF8_BYTES <= MAX_ID_BYTES or len(value.encode()) <= MAX_ID_BYTES


def check_resource(value: object, field: str = "resource") -> str:
    """Accept letters, digits and ``_ - . / : @ +``, starting with a letter or digit.

    The ids that providers give their models are valid, for example ``llama3:8b``.
    """
    return _check_name(
        value,
        field,
        _RESOURCE,
        MAX_RESOURCE_LENGTH,
        marks="_ - . / : @ +",
        first="letter or digit",
    )


def check_resource_or_default(value: object, field: str = "resource") -> str:
    """Accept a resource, or ``_default_`` for all resources that an entity has no limits on."""
    return DEFAULT_RESOURCE if value == DEFAULT_RESOURCE else check_resource(value, field)


def check_limit_name(value: object, field: str = "limit") -> str:
    """Accept letters, digits and ``_ - .``, starting with a letter; ``wcu`` is reserved."""
    name = _check_name(value, field, _LIMIT, MAX_LIMIT_NAME_LENGTH, marks="_ - .")
    if name.lower() in RESERVED_LIMIT_NAMES:
        raise InvalidNameError(field, value, "is reserved; choose another name")
    return name


def check_namespace(value: object, field: str = "namespace") -> str:
    """Accept letters, digits and ``_ - .``, starting with a letter or digit."""
    return _check_name(
        value, field, _NAMESPACE, MAX_NAMESPACE_LENGTH, marks="_ - .", first="letter or digit"
    )


def check_stack_name(
    value: object, field: str = "stack", *, longest: int = MAX_STACK_LENGTH
) -> str:
    """Accept 3 to 45 letters, digits and hyphens, starting with a letter.

    The table, the stack and the functions are named after it.
    """
    checked = _check_name(value, field, _STACK, longest, marks="-")
    if len(checked) < MIN_STACK_LENGTH:
        raise InvalidNameError(
            field, value, f"must have at least {MIN_STACK_LENGTH} characters, as names of tables"
        )
    return checked


def _check_name(
    value: object,
    field: str,
    pattern: str,
    longest: int,
    *,
    marks: str,
    first: str = "letter",
) -> str:
    if type(value) is str and len(value) <= longest and _fits(pattern, value):
        return value
    if not isinstance(value, str):
        raise InvalidNameError(field, value, "must be a string")
    if not value:
        raise InvalidNameError(field, value, "must not be empty")
    if len(value) > longest:
        raise InvalidNameError(field, value, f"must have at most {longest} characters")
    raise InvalidNameError(
        field, value, f"may contain letters, digits and {marks}, starting with a {first}"
    )


@lru_cache(CACHED_CHECKS, typed=True)
def check_bucket_names(entity_id: str, resource: str) -> None:
    """Check the entity and the resource of an acquire; cached, since every acquire asks."""
    check_entity_id(entity_id)
    check_resource(resource)


@lru_cache(CACHED_CHECKS)
def _fits(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value) is not None


def check_text(value: object, field: str, longest: int = MAX_ID_LENGTH) -> str | None:
    """Accept text of at most 256 characters that can be stored as UTF-8, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValidationError(field, value, "must be text")
    if len(value) > longest:
        raise ValidationError(field, value, f"must have at most {longest} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(field, value, "must be valid Unicode text") from None
    return value


def check_bool(value: object, field: str) -> bool:
    """Accept True or False."""
    if type(value) is not bool:
        raise ValidationError(field, value, "must be True or False")
    return value


def check_cursor(value: object) -> str | None:
    """Accept text that a listing may have returned, or None."""
    return check_text(value, "cursor", MAX_CURSOR_LENGTH)


def check_principal(value: object) -> str | None:
    """Check the author of a change, who is named in the audit log."""
    return check_text(value, "principal")


def check_namespace_id(value: object) -> str:
    """Accept an id that a store has assigned."""
    if not isinstance(value, str) or not value or not value.isascii():
        raise InvalidIdentifierError("namespace_id", value, "must be an id from the registry")
    return value


def check_document(value: object) -> dict[str, Any]:
    """Return a copy of a mapping that JSON can hold."""
    import json  # imported here, since only provisioning writes documents

    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):  # other types, or a cycle
        copy = None
    if not isinstance(copy, dict):
        raise ValidationError("document", value, "must be a mapping that JSON can hold")
    return copy


# `secrets` would import `random` and `hmac`, and gets its bytes from os.urandom as well.
_sequence = itertools.count(int.from_bytes(os.urandom(3)) >> 4)  # ids show 24 bits, which may wrap


def new_namespace_id() -> str:
    """Return eleven random characters without a leading '-', which would look like an option."""
    from base64 import urlsafe_b64encode  # imported here, since few processes need it

    while (candidate := urlsafe_b64encode(os.urandom(8))).startswith(b"-"):
        pass
    return candidate.rstrip(b"=").decode()


def event_prefix(now_ms: int) -> str:
    """Return the beginning of the ids of all events of a millisecond."""
    return f"{now_ms:012x}"


def new_event_id(now_ms: int) -> str:
    """Return an id that sorts by time, and within a millisecond of one process by creation."""
    return f"{event_prefix(now_ms)}-{next(_sequence) & 0xFFFFFF:06x}-{os.urandom(3).hex()}"


def process_author() -> str:
    """Return ``user@host`` of this process, the author of changes without a principal."""
    import getpass  # imported here, since changes are rare
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # in a container, the user may have no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"

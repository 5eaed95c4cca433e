"""What ids, resources, limits, namespaces and stacks may be called."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from zae_limiter.exceptions import InvalidIdentifierError, InvalidNameError, ValidationError

REMEMBERED = 4096
MAX_ID_LENGTH = 256
MAX_RESOURCE_LENGTH = 128
MAX_LIMIT_NAME_LENGTH = 64
MAX_NAMESPACE_LENGTH = 64
MAX_STACK_LENGTH = 55

DEFAULT_RESOURCE = "_default_"  # an entity's limits for every resource without its own
RESERVED_LIMIT_NAMES = frozenset({"wcu"})  # bookkeeping of the DynamoDB engine in the documents
RESERVED_NAMESPACE = "_"

_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]*")
_LIMIT = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9\-]*")


def check_entity_id(value: object, field: str = "entity_id") -> str:
    """Any printable text of 1 to 256 characters without '#', not starting with '$'."""
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
    raise InvalidIdentifierError(field, value, "must be printable, without space at either end")


@lru_cache(REMEMBERED)
def _is_plain_id(value: str) -> bool:
    """The rule in one expression, remembered: every acquire asks."""
    return (
        0 < len(value) <= MAX_ID_LENGTH
        and "#" not in value
        and value[0] != "$"
        and value.isprintable()
        and value == value.strip()
    )


def check_resource(value: object, field: str = "resource") -> str:
    """Letters, digits and ``_ - . /``, starting with a letter."""
    return _check_name(value, field, _RESOURCE, MAX_RESOURCE_LENGTH, "_ - . /")


def check_resource_or_default(value: object, field: str = "resource") -> str:
    """A resource, or ``_default_``: all resources of an entity without limits of their own."""
    return DEFAULT_RESOURCE if value == DEFAULT_RESOURCE else check_resource(value, field)


def check_limit_name(value: object, field: str = "limit") -> str:
    """Letters, digits and ``_ - .``, starting with a letter; ``wcu`` is reserved."""
    name = _check_name(value, field, _LIMIT, MAX_LIMIT_NAME_LENGTH, "_ - .")
    if name.lower() in RESERVED_LIMIT_NAMES:
        raise InvalidNameError(field, value, "is reserved; choose another name")
    return name


def check_namespace(value: object, field: str = "namespace") -> str:
    """Letters, digits and ``_ - .``, starting with a letter or digit."""
    return _check_name(value, field, _NAMESPACE, MAX_NAMESPACE_LENGTH, "_ - .", "letter or digit")


def check_stack_name(value: object, field: str = "stack") -> str:
    """Letters, digits and hyphens, starting with a letter: CloudFormation's rule."""
    return _check_name(value, field, _STACK, MAX_STACK_LENGTH, "-")


def _check_name(
    value: object,
    field: str,
    pattern: re.Pattern[str],
    longest: int,
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


@lru_cache(REMEMBERED)
def _fits(pattern: re.Pattern[str], value: str) -> bool:
    return pattern.fullmatch(value) is not None


def check_text(value: object, field: str) -> str | None:
    """Free text of at most 256 characters that can be stored as UTF-8, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValidationError(field, value, "must be text")
    if len(value) > MAX_ID_LENGTH:
        raise ValidationError(field, value, f"must have at most {MAX_ID_LENGTH} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(field, value, "must be valid Unicode text") from None
    return value


def check_principal(value: object) -> str | None:
    """Who makes a change."""
    return check_text(value, "principal")


def check_namespace_id(value: object) -> str:
    """An opaque id that a store gave out."""
    if not isinstance(value, str) or not value or not value.isascii():
        raise InvalidIdentifierError("namespace_id", value, "must be an id from the registry")
    return value


def check_document(value: object) -> dict[str, Any]:
    """A copy of something that JSON can hold."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        copy = None
    if not isinstance(copy, dict):
        raise ValidationError("document", value, "must be a mapping that JSON can hold")
    return copy

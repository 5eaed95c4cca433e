"""The form of typed values and of items: ``{"name": {"S": "text"}, …}``, as DynamoDB spells it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

MAX_DIGITS = 40  # DynamoDB's numbers have 38
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)


def is_item(value: object) -> bool:
    """Return whether a value is an item in DynamoDB's JSON: ``{"name": {"S": "text"}, …}``."""
    return isinstance(value, dict) and all(map(_is_attribute, value.values()))


def _is_attribute(value: object) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    is_valid = _KINDS.get(kind)
    return is_valid is not None and is_valid(content)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    is_plain = value.isdecimal() and value.isascii() and len(value) <= MAX_DIGITS
    return is_plain or _NUMBER.fullmatch(value) is not None


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def is_list(value: object, is_valid: Callable[[object], bool]) -> bool:
    """Return whether a value is a list of valid values."""
    return isinstance(value, list) and all(map(is_valid, value))


_KINDS: dict[str, Callable[[object], bool]] = {
    "S": _is_text,
    "N": _is_number,
    "B": _is_text,
    "BOOL": _is_bool,
    "NULL": _is_bool,
    "SS": partial(is_list, is_valid=_is_text),
    "NS": partial(is_list, is_valid=_is_number),
    "BS": partial(is_list, is_valid=_is_text),
    "L": partial(is_list, is_valid=_is_attribute),
    "M": is_item,
}

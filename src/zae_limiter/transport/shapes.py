"""The forms of DynamoDB's answers. Content of another form comes from another server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

MAX_DIGITS = 40  # DynamoDB's numbers have 38
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)


def has_shape(operation: str, content: Mapping[str, Any]) -> bool:
    """Return whether a successful response has the form that the operation's callers rely on."""
    return all(is_valid(content.get(name)) for name, is_valid in _SHAPES.get(operation, {}).items())


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


def _is_list(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(is_valid, value))


def _is_dict(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_valid, value.values()))


def _is_optional_item(value: object) -> bool:
    return value is None or is_item(value)


def _are_items(value: object) -> bool:
    return _is_list(value, is_item)


def _is_unread(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("Keys"), list)


def are_reasons(value: object) -> bool:
    """Return whether a value is a list of reasons for the actions of a transaction."""
    return _is_list(value, _is_reason)


def _is_reason(value: object) -> bool:
    return isinstance(value, dict) and _is_optional_item(value.get("Item"))


def _optional(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_valid(value)


_KINDS: dict[str, Callable[[object], bool]] = {
    "S": _is_text,
    "N": _is_number,
    "B": _is_text,
    "BOOL": _is_bool,
    "NULL": _is_bool,
    "SS": partial(_is_list, is_valid=_is_text),
    "NS": partial(_is_list, is_valid=_is_number),
    "BS": partial(_is_list, is_valid=_is_text),
    "L": partial(_is_list, is_valid=_is_attribute),
    "M": is_item,
}
_PAGE: dict[str, Callable[[object], bool]] = {
    "Items": _are_items,
    "LastEvaluatedKey": _is_optional_item,
}
# All fields of the answers of the operations below and of those that change tables.
FIELDS = frozenset(
    {
        "Attributes",
        "ConsumedCapacity",
        "Count",
        "Item",
        "ItemCollectionMetrics",
        "Items",
        "LastEvaluatedKey",
        "Responses",
        "ScannedCount",
        "Table",
        "TableDescription",
        "TableNames",
        "TimeToLiveDescription",
        "TimeToLiveSpecification",
        "UnprocessedItems",
        "UnprocessedKeys",
    }
)
_SHAPES: dict[str, dict[str, Callable[[object], bool]]] = {
    "BatchGetItem": {
        "Responses": partial(_is_dict, is_valid=_are_items),
        "UnprocessedKeys": _optional(partial(_is_dict, is_valid=_is_unread)),
    },
    "BatchWriteItem": {
        "UnprocessedItems": _optional(
            partial(_is_dict, is_valid=lambda value: isinstance(value, list))
        ),
    },
    "DescribeTable": {"Table": lambda value: isinstance(value, dict) and "TableStatus" in value},
    "GetItem": {"Item": _is_optional_item},
    "Query": _PAGE,
    "Scan": _PAGE,
    "TransactGetItems": {"Responses": partial(_is_list, is_valid=_is_reason)},
}

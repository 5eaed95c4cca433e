"""The forms of DynamoDB's answers. Content of another form comes from another server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from zae_limiter.items.stored.values import is_item, is_list


def has_shape(operation: str, content: Mapping[str, Any]) -> bool:
    """Return whether a successful response has the form that the operation's callers rely on."""
    return all(is_valid(content.get(name)) for name, is_valid in _SHAPES.get(operation, {}).items())


def _is_dict(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_valid, value.values()))


def _is_optional_item(value: object) -> bool:
    return value is None or is_item(value)


def _are_items(value: object) -> bool:
    return is_list(value, is_item)


def _is_unread(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("Keys"), list)


def are_reasons(value: object) -> bool:
    """Return whether a value is a list of reasons for the actions of a transaction."""
    return is_list(value, _is_reason)


def _is_reason(value: object) -> bool:
    return isinstance(value, dict) and _is_optional_item(value.get("Item"))


def _optional(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_valid(value)


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
    "TransactGetItems": {"Responses": partial(is_list, is_valid=_is_reason)},
}

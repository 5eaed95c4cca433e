"""The form of a request: its expressions and types, without anybody's names, keys and values.

A form is a request that can be sent. Each item of it has a key of its own, each value is the same
for its type, and the attributes are numbered. Keys of indexes keep their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.aws_rules.rules import KEY_NAMES, SORT_KEYS

TABLE = "table-of-forms"
MOST_OF_A_PAGE = 10
# A query goes on after a key that lies inside of its range.
START, END = "s5", "sz"
_END = re.compile(r"(?:BETWEEN :\w+ AND|<=?)\s*(:\w+)")
SAMPLES: dict[str, Any] = {"S": "s", "N": "1", "B": "cw==", "BOOL": True, "NULL": True}


class Form(NamedTuple):
    """An operation, and its request as JSON."""

    operation: str
    text: str

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


def form_of(operation: str, body: Mapping[str, Any]) -> Form:
    """Return the form of a request."""
    return Form(operation, json.dumps(_Anonymous().request(body), sort_keys=True))


class _Anonymous:
    """Makes one request anonymous; counts the items that it names."""

    def __init__(self) -> None:
        self._items = 0

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for part, content in body.items():
            if part == "TableName":
                made[part] = TABLE
            elif part in ("Key", "Item"):
                made[part] = self._item(content)
            elif part == "ExclusiveStartKey":
                made[part] = {name: _start(name) for name in content}
            elif part == "Limit":
                made[part] = min(content, MOST_OF_A_PAGE)
            elif part == "ExpressionAttributeValues":
                ends = set(_END.findall(body.get("KeyConditionExpression", "")))
                made[part] = {
                    short: {"S": END} if short in ends else _value(value)
                    for short, value in content.items()
                }
            elif part == "ExpressionAttributeNames":
                made[part] = {
                    short: name if name in KEY_NAMES or name == "ttl" else f"a{number}"
                    for number, (short, name) in enumerate(content.items())
                }
            elif part == "TransactItems":
                made[part] = [
                    {kind: self.request(action) for kind, action in each.items()}
                    for each in content
                ]
            elif part == "RequestItems":
                made[part] = {TABLE: self._batch(content)}
            elif part != "ClientRequestToken":
                made[part] = content
        return made

    def _batch(self, tables: Mapping[str, Any]) -> Any:
        [requests] = tables.values()
        if isinstance(requests, list):
            return [{kind: self.request(part) for kind, part in each.items()} for each in requests]
        return {**self.request(requests), "Keys": [self._item(key) for key in requests["Keys"]]}

    def _item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item with a key of its own."""
        self._items += 1
        names = {
            name: name if name in KEY_NAMES else f"a{number}" for number, name in enumerate(item)
        }
        made = {names[name]: _value(value) for name, value in item.items()}
        return {**made, "PK": {"S": f"key-{self._items}"}} if "PK" in item else made


def _start(name: str) -> dict[str, str]:
    return {"S": START if name in SORT_KEYS else SAMPLES["S"]}


def _value(value: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "M":
        return {"M": {f"a{at}": _value(each) for at, each in enumerate(content.values())}}
    if kind == "L":
        return {"L": [_value(each) for each in content]}
    if kind in ("SS", "NS", "BS"):
        return {kind: [SAMPLES[kind[0]]]}
    return {kind: SAMPLES[kind]}

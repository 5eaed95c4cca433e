"""Build an UpdateItem request clause by clause.

DynamoDB accepts 4,096 bytes and 300 operators in an expression. Writes that name every limit of a
bucket come near to that, so expressions are sent without blanks, under placeholders that are short.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from zae_limiter.items.stored.attributes import Item, Value

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SPACED = (", ", " = ", " <> ", " >= ", " <= ", " < ", " > ", " + ", " - ")


class UpdateExpression:
    """Collects clauses; ``body`` renders them. Names and values get placeholders."""

    __slots__ = ("_adds", "_conditions", "_names", "_removes", "_sets", "_values", "key")

    def __init__(self, key: Item) -> None:
        self.key = key
        self._sets: list[str] = []
        self._adds: list[str] = []
        self._removes: list[str] = []
        self._conditions: list[str] = []
        self._names: dict[str, str] = {}
        self._values: dict[str, Value] = {}

    def name(self, attribute: str) -> str:
        """Return a placeholder for an attribute, whose name may be reserved or contain dots."""
        placeholder = self._names.get(attribute)
        if placeholder is None:
            placeholder = self._names[attribute] = f"#{_short(len(self._names))}"
        return placeholder

    def value(self, value: Value) -> str:
        placeholder = f":{_short(len(self._values))}"
        self._values[placeholder] = value
        return placeholder

    def number(self, value: int) -> str:
        return self.value({"N": str(value)})

    def set(self, attribute: str, value: Value) -> None:
        self._sets.append(f"{self.name(attribute)} = {self.value(value)}")

    def set_all(self, attributes: Item) -> None:
        for attribute, value in attributes.items():
            self.set(attribute, value)

    def set_number(self, attribute: str, value: int) -> None:
        self._sets.append(f"{self.name(attribute)} = {self.number(value)}")

    def set_if_missing(self, attribute: str, value: Value) -> None:
        name = self.name(attribute)
        self._sets.append(f"{name} = if_not_exists({name}, {self.value(value)})")

    def set_to(self, attribute: str, expression: str) -> None:
        """Set an attribute to an expression, which sees the item before the update."""
        self._sets.append(f"{self.name(attribute)} = {expression}")

    def add(self, attribute: str, value: int) -> None:
        self._adds.append(f"{self.name(attribute)} {self.number(value)}")

    def remove(self, attribute: str) -> None:
        self._removes.append(self.name(attribute))

    def require(self, condition: str) -> None:
        """Add a condition; all must hold."""
        self._conditions.append(condition)

    def require_equal(self, attribute: str, value: Value) -> None:
        self.require(f"{self.name(attribute)} = {self.value(value)}")

    def action(self) -> dict[str, Any]:
        """Return the update as an action of a transaction."""
        body: dict[str, Any] = {
            "Key": self.key,
            "UpdateExpression": self._expression(),
            "ExpressionAttributeNames": {short: name for name, short in self._names.items()},
        }
        if self._values:
            body["ExpressionAttributeValues"] = self._values
        if self._conditions:
            body["ConditionExpression"] = without_blanks(" AND ".join(self._conditions))
            body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return body

    def body(self) -> dict[str, Any]:
        """Return the body of an UpdateItem; the answer has the item, also if a condition fails."""
        return {**self.action(), "ReturnValues": "ALL_NEW"}

    def text(self, table: str) -> str:
        """Return the encoded body of the request."""
        return _encode({"TableName": table, **self.body()})

    def text_with_gaps(self, table: str, *open_names: str, returns_old: bool = False) -> str:
        """Return the encoded body with ``%s`` for what differs between requests of one kind.

        That is, in this order: each attribute of the key, each of the attributes ``open_names``,
        and each value. All are filled in as JSON strings, numbers too. With ``returns_old`` the
        answer has the attributes that the update sets, as they were before.
        """
        body: dict[str, Any] = {"TableName": table, **self.action()}
        if returns_old:
            body["ReturnValues"] = "UPDATED_OLD"
        key, names = body.pop("Key"), body.pop("ExpressionAttributeNames")
        values = body.pop("ExpressionAttributeValues", {})
        opened = [f'"{self.name(name)}":%s' for name in open_names]
        fixed = {short: name for short, name in names.items() if name not in open_names}
        named = ",".join([*opened, *([_encode(fixed)[1:-1]] if fixed else [])])
        return (
            f'{{{_encode(body)[1:-1]},"Key":{{{_gaps(key)}}},'
            f'"ExpressionAttributeNames":{{{named}}},'
            f'"ExpressionAttributeValues":{{{_gaps(values)}}}}}'
        )

    def _expression(self) -> str:
        clauses = (("SET", self._sets), ("ADD", self._adds), ("REMOVE", self._removes))
        return without_blanks(
            " ".join(f"{word} {', '.join(parts)}" for word, parts in clauses if parts)
        )


def without_blanks(expression: str) -> str:
    """Return an expression of placeholders without the blanks that only readers need."""
    for spaced in _SPACED:
        expression = expression.replace(spaced, spaced.strip())
    return expression


@cache
def _short(number: int) -> str:
    """Return a number to base 36: two characters are enough for every attribute of a bucket."""
    text = _DIGITS[number % 36]
    return text if number < 36 else _short(number // 36) + text


def _gaps(values: Item) -> str:
    return ",".join(f'"{name}":{{"{kind}":%s}}' for name, (kind,) in values.items())

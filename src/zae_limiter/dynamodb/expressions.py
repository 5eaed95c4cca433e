"""DynamoDB's text of a write: its expressions, under placeholders for names and values.

DynamoDB accepts 4,096 bytes and 300 operators in an expression. Writes that name every limit of a
bucket come near to that, so expressions are sent without blanks, under placeholders that are short.

Rendering costs more than anything else that is done for a write. Usual updates of one form differ
in their values alone: the first one is rendered, and the others fill in their values.
"""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from zae_limiter.items.stored.attributes import Value, s
from zae_limiter.items.stored.query import AFTER, BEFORE, BETWEEN, PREFIX, ItemQuery
from zae_limiter.items.stored.update import (
    ABSENT,
    ADD,
    ANY_ITEM,
    ANY_OF,
    COPY,
    EFFECTS,
    NO_ITEM,
    PRESENT,
    REMOVE,
    SET,
    SET_IF_ABSENT,
    SUBTRACT,
    Clause,
    ItemCheck,
    ItemDelete,
    ItemPut,
    ItemUpdate,
    ItemWrite,
    Name,
    typed,
)
from zae_limiter.runtime.bounded import BoundedDict

MAX_TEMPLATES = 4096  # bounds memory; a form is a set of limits and the branch of each
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class _Template(NamedTuple):
    """The body of a request with a gap for each value, and the gaps that are filled with texts."""

    text: str
    texts: tuple[int, ...]


_templates: BoundedDict[tuple[object, ...], _Template] = BoundedDict(MAX_TEMPLATES)


def text(update: ItemUpdate, table: str, returns: str = "") -> str:
    """Return the encoded body of an UpdateItem, whose answer has what ``returns`` says."""
    if not (update.is_usual and update.values):
        return _encode({"TableName": table, **body(update, returns)})
    form = (table, returns, len(update.names), *update.clauses)
    filled: list[Any] = [*update.key, *update.names, *update.values]
    template = _templates.get(form)
    if template is None:
        texts = tuple([at for at, each in enumerate(filled) if isinstance(each, str)])
        template = _Template(_with_gaps(update, table, returns), texts)
        _templates.put(form, template)
    for at in template.texts:
        filled[at] = encode_basestring_ascii(filled[at])
    return template.text % tuple(filled)


def body(update: ItemUpdate, returns: str = "") -> dict[str, Any]:
    """Return the body of an UpdateItem."""
    rendered = {"Key": update.key.attributes, **_fields(update)}
    return {**rendered, "ReturnValues": returns} if returns else rendered


def action(write: ItemWrite, table: str) -> dict[str, Any]:
    """Return a write as an action of a transaction."""
    key = {"Key": write.key.attributes}
    if isinstance(write, ItemUpdate):
        return {"Update": {"TableName": table, **key, **_fields(write)}}
    if isinstance(write, ItemPut):
        return {"Put": {"TableName": table, "Item": write.item, **_fields(write)}}
    if isinstance(write, ItemDelete):
        return {"Delete": {"TableName": table, **key, **_fields(write)}}
    assert isinstance(write, ItemCheck)
    return {"ConditionCheck": {"TableName": table, **key, **_fields(write)}}


def query(query: ItemQuery) -> dict[str, Any]:
    """Return the body of a Query; an index cannot be read consistently."""
    key, values = f"{query.partition_key} = :pk", {":pk": s(query.partition)}
    if query.sort is not None:
        word, first, last = query.sort
        key += f" AND {_RANGES[word].format(query.sort_key)}"
        values[":first"] = s(first)
        if word == BETWEEN:
            values[":last"] = s(last)
    rendered: dict[str, Any] = {
        "KeyConditionExpression": key,
        "ExpressionAttributeValues": values,
        "ScanIndexForward": not query.newest_first,
    }
    rendered |= {"IndexName": query.index_name} if query.index_name else {"ConsistentRead": True}
    if query.page_size is not None:
        rendered["Limit"] = query.page_size
    if query.only:
        values |= {f":only{at}": s(each) for at, each in enumerate(query.only)}
        rendered["FilterExpression"] = " OR ".join(
            f"SK = :only{at}" for at in range(len(query.only))
        )
    if any(query.only_between):
        values[":above"], values[":below"] = map(s, query.only_between)
        rendered["FilterExpression"] = "SK > :above AND SK < :below"
    if query.after is not None:
        rendered["ExclusiveStartKey"] = query.after
    return rendered


_RANGES = {
    PREFIX: "begins_with({}, :first)",
    BETWEEN: "{} BETWEEN :first AND :last",
    AFTER: "{} > :first",
    BEFORE: "{} < :first",
}


def _fields(write: ItemWrite) -> dict[str, Any]:
    """Return the expressions of a write, with their names and values."""
    rendering = _Rendering(write)
    given: dict[str, Any] = {}
    if rendering.names:
        named = {short: name for name, short in rendering.names.items()}
        given["ExpressionAttributeNames"] = named
    if write.values:
        values = {_place(at): typed(value) for at, value in enumerate(write.values)}
        given["ExpressionAttributeValues"] = values
    condition: dict[str, Any] = {}
    if rendering.conditions:
        condition["ConditionExpression"] = " AND ".join(rendering.conditions)
        condition["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if isinstance(write, ItemUpdate):
        return {"UpdateExpression": rendering.change(), **given, **condition}
    return {**condition, **given}


class _Rendering:
    """The clauses of a write as text, with short names in the order of their first use."""

    def __init__(self, write: ItemWrite) -> None:
        self._write = write
        self.names: dict[str, str] = {}
        self.conditions: list[str] = []
        self._parts: dict[str, list[str]] = {"SET": [], "ADD": [], "REMOVE": []}
        for clause in write.clauses:
            if clause[0] in EFFECTS:
                self._effect(*clause)
            else:
                self.conditions.append(self._condition(clause))

    def change(self) -> str:
        return " ".join(f"{word} {','.join(parts)}" for word, parts in self._parts.items() if parts)

    def _effect(self, word: str, name: Name, *rest: Any) -> None:
        if word == ADD:
            self._parts["ADD"].append(f"{self._name(name)} {_place(rest[0])}")
        elif word == REMOVE:
            self._parts["REMOVE"].append(self._name(name))
        else:
            value = self._new_value(word, name, rest)  # it names its sources first
            self._parts["SET"].append(f"{self._name(name)}={value}")

    def _new_value(self, word: str, name: Name, rest: tuple[Any, ...]) -> str:
        if word == SET:
            return _place(rest[0])
        if word == SET_IF_ABSENT:
            return f"if_not_exists({self._name(name)},{_place(rest[0])})"
        if word == COPY:
            return self._name(rest[0]) if rest[1] is None else self._or(rest[0], rest[1])
        first, second, place = rest
        if word == SUBTRACT:
            return f"{self._name(first)}-{self._or(second, place)}"
        return f"{self._or(first, place)}+{self._or(second, place)}"

    def _or(self, name: Name, place: int) -> str:
        return f"if_not_exists({self._name(name)},{_place(place)})"

    def _condition(self, clause: Clause) -> str:
        word, *rest = clause
        if word == NO_ITEM:
            return "attribute_not_exists(PK)"
        if word == ANY_ITEM:
            return "attribute_exists(PK)"
        if word == ABSENT:
            return f"attribute_not_exists({self._name(rest[0])})"
        if word == PRESENT:
            return f"attribute_exists({self._name(rest[0])})"
        if word == ANY_OF:
            return f"({' OR '.join(map(self._all_of, rest[0]))})"
        return f"{self._name(rest[0])}{word}{_place(rest[1])}"

    def _all_of(self, terms: tuple[Clause, ...]) -> str:
        joined = " AND ".join(map(self._condition, terms))
        return joined if len(terms) == 1 else f"({joined})"

    def _name(self, name: Name) -> str:
        """Return the placeholder of a name, which may be reserved or contain dots."""
        attribute = name if isinstance(name, str) else self._write.names[name]
        placeholder = self.names.get(attribute)
        if placeholder is None:
            placeholder = self.names[attribute] = f"#{_short(len(self.names))}"
        return placeholder


def _with_gaps(update: ItemUpdate, table: str, returns: str) -> str:
    """Return the encoded body with a gap for the key, each name that is open, and each value.

    A number is filled in as it is, and a text with its quotes.
    """
    rendered = {"TableName": table, **body(update, returns)}
    del rendered["Key"]
    names, values = rendered["ExpressionAttributeNames"], rendered.pop("ExpressionAttributeValues")
    opened = [f'"{short}":%s' for short, name in names.items() if name in update.names]
    key = '"Key":{"PK":{"S":%s},"SK":{"S":%s}}'
    gaps = ",".join(f'"{short}":{{{_gap(value)}}}' for short, value in values.items())
    given = f'"ExpressionAttributeValues":{{{gaps}}}'
    if not opened:
        return f"{{{key},{given},{_rest(rendered)}}}"
    del rendered["ExpressionAttributeNames"]
    fixed = {short: name for short, name in names.items() if name not in update.names}
    named = ",".join([*opened, *([_rest(fixed)] if fixed else [])])
    return f'{{{_rest(rendered)},{key},"ExpressionAttributeNames":{{{named}}},{given}}}'


def _rest(members: dict[str, Any]) -> str:
    return _encode(members)[1:-1].replace("%", "%%")


def _gap(value: Value) -> str:
    return '"N":"%s"' if "N" in value else '"S":%s'


def _place(place: int) -> str:
    return f":{_short(place)}"


@cache
def _short(number: int) -> str:
    """Return a number to base 36: two characters are enough for every attribute of a bucket."""
    text = _DIGITS[number % 36]
    return text if number < 36 else _short(number // 36) + text

"""Condition and update expressions of DynamoDB, compiled once and evaluated on items.

Only what flat items need: no document paths, sets or lists. Items are in DynamoDB's JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

Item = dict[str, dict[str, Any]]
Names = Mapping[str, str]
Values = Mapping[str, dict[str, Any]]
Condition = Callable[[Item, Names, Values], bool]
Operand = Callable[[Item, Names, Values], dict[str, Any] | None]

_TOKEN = re.compile(r"\s*(?:([#:]?[A-Za-z0-9_]+)|(<>|<=|>=|[=<>(),+-]))")
_COMPARISONS = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_CLAUSES = ("SET", "ADD", "REMOVE")


_OPERATOR = re.compile(r"\s*(<>|<=|>=|[=<>+-])\s*")


def with_blanks(expression: str) -> str:
    """Return an expression of placeholders as people write it."""
    return re.sub(r",\s*", ", ", _OPERATOR.sub(r" \1 ", expression))


class Invalid(Exception):
    """What DynamoDB calls a ValidationException."""


class Compiled(NamedTuple):
    """An expression, and the placeholders that it uses."""

    run: Any
    placeholders: frozenset[str]
    paths: tuple[str, ...] = ()  # that an update changes


@cache
def condition(text: str) -> Compiled:
    """Compile a condition, a filter or a key condition."""
    parser = _Parser(text)
    run = parser.disjunction()
    parser.end()
    return Compiled(run, parser.placeholders)


@cache
def update(text: str) -> Compiled:
    """Compile an update; it returns a new item, and leaves the old one as it is."""
    parser = _Parser(text)
    sets: list[tuple[str, Operand]] = []
    adds: list[tuple[str, str]] = []
    removes: list[str] = []
    seen = set()
    while parser.more():
        clause = parser.word().upper()
        if clause not in _CLAUSES or clause in seen:
            raise Invalid(f"bad clause {clause} in {text!r}")
        seen.add(clause)
        while True:
            path = parser.word()
            if clause == "SET":
                parser.expect("=")
                sets.append((path, parser.sum()))
            elif clause == "ADD":
                adds.append((path, parser.word()))
            else:
                removes.append(path)
            if not parser.accept(","):
                break

    def run(item: Item, names: Names, values: Values) -> Item:
        after = dict(item)
        for path, operand in sets:
            value = operand(item, names, values)
            if value is None:
                raise Invalid(f"{path} is set to an attribute that does not exist in the item")
            after[name_of(path, names)] = value
        for path, placeholder in adds:
            name = name_of(path, names)
            before = item.get(name, {"N": "0"})
            after[name] = _number(_numeric(before) + _numeric(value_of(placeholder, values)))
        for path in removes:
            after.pop(name_of(path, names), None)
        return after

    paths = (*(path for path, _ in sets), *(path for path, _ in adds), *removes)
    return Compiled(run, parser.placeholders, paths)


def check_paths(compiled: Compiled, names: Names) -> None:
    """Raise if an update changes an attribute twice."""
    attributes = [name_of(path, names) for path in compiled.paths]
    if len(set(attributes)) < len(attributes):
        raise Invalid("two document paths overlap with each other")


def name_of(path: str, names: Names) -> str:
    if not path.startswith("#"):
        return path
    try:
        return names[path]
    except KeyError:
        raise Invalid(f"no name for {path}") from None


def value_of(placeholder: str, values: Values) -> dict[str, Any]:
    try:
        return values[placeholder]
    except KeyError:
        raise Invalid(f"no value for {placeholder}") from None


def scalar(value: dict[str, Any]) -> Any:
    """The Python value that compares as DynamoDB compares."""
    ((kind, content),) = value.items()
    if kind != "N":
        return content
    return int(content) if content.lstrip("-").isdecimal() else Decimal(content)


def _numeric(value: dict[str, Any]) -> Any:
    if "N" not in value:
        raise Invalid("an operand is not a number")
    return scalar(value)


def _number(value: Any) -> dict[str, str]:
    return {"N": str(value)}


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self.placeholders = frozenset(each for each in self._tokens if each[0] in "#:")

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens, at, text = [], 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise Invalid(f"cannot read {text[at:]!r}")
            tokens.append(match[1] or match[2])
            at = match.end()
        return tokens

    def more(self) -> bool:
        return self._at < len(self._tokens)

    def peek(self) -> str:
        return self._tokens[self._at] if self.more() else ""

    def word(self) -> str:
        token = self.peek()
        if not token or not (token[0] in "#:_" or token[0].isalnum()):
            raise Invalid(f"a name or value is missing in {self._text!r}")
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek().upper() == token:
            self._at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise Invalid(f"{token} is missing in {self._text!r}")

    def end(self) -> None:
        if self.more():
            raise Invalid(f"{self.peek()!r} is too much in {self._text!r}")

    # --- conditions

    def disjunction(self) -> Condition:
        parts = [self._conjunction()]
        while self.accept("OR"):
            parts.append(self._conjunction())
        if len(parts) == 1:
            return parts[0]
        return lambda item, names, values: any(part(item, names, values) for part in parts)

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self.accept("AND"):
            parts.append(self._negation())
        if len(parts) == 1:
            return parts[0]
        return lambda item, names, values: all(part(item, names, values) for part in parts)

    def _negation(self) -> Condition:
        if self.accept("NOT"):
            part = self._negation()
            return lambda item, names, values: not part(item, names, values)
        if self.accept("("):
            start = self._at
            part = self.disjunction()
            if self.peek() == ")" and self._encloses(start):
                raise Invalid("the expression has redundant parentheses")
            self.expect(")")
            return part
        return self._comparison()

    def _encloses(self, start: int) -> bool:
        """Whether what was read since then is one group in parentheses."""
        depth = 0
        for at in range(start, self._at):
            depth += (self._tokens[at] == "(") - (self._tokens[at] == ")")
            if not depth:
                return at == self._at - 1 and self._tokens[start] == "("
        return False

    def _comparison(self) -> Condition:
        word = self.word()
        if self.accept("("):
            return self._function(word.lower())
        left = self._leaf(word)
        if self.accept("BETWEEN"):
            low = self._leaf(self.word())
            self.expect("AND")
            high = self._leaf(self.word())
            return _both(_compared(left, ge, low), _compared(left, le, high))
        comparison = _COMPARISONS.get(self.peek())
        if comparison is None:
            raise Invalid(f"a comparison is missing in {self._text!r}")
        self._at += 1
        return _compared(left, comparison, self._leaf(self.word()))

    def _function(self, name: str) -> Condition:
        path = self.word()
        if name in ("attribute_exists", "attribute_not_exists"):
            self.expect(")")
            wanted = name == "attribute_exists"
            return lambda item, names, _: (name_of(path, names) in item) is wanted
        if name == "begins_with":
            self.expect(",")
            prefix = self._leaf(self.word())
            self.expect(")")
            return _begins(self._leaf(path), prefix)
        raise Invalid(f"{name} is not part of this model")

    # --- operands

    def sum(self) -> Operand:
        left = self._operand()
        for sign in "+-":
            if self.accept(sign):
                return _arithmetic(left, sign, self._operand())
        return left

    def _operand(self) -> Operand:
        word = self.word()
        if not self.accept("("):
            return self._leaf(word)
        if word != "if_not_exists":
            raise Invalid(f"{word} is not part of this model")
        path = self.word()
        self.expect(",")
        other = self._operand()
        self.expect(")")

        def if_not_exists(item: Item, names: Names, values: Values) -> dict[str, Any] | None:
            value = item.get(name_of(path, names))
            return other(item, names, values) if value is None else value

        return if_not_exists

    @staticmethod
    def _leaf(word: str) -> Operand:
        if word.startswith(":"):
            return lambda _, __, values: value_of(word, values)
        return lambda item, names, _: item.get(name_of(word, names))


def _both(one: Condition, other: Condition) -> Condition:
    return lambda item, names, values: one(item, names, values) and other(item, names, values)


def _compared(left: Operand, comparison: Callable[[Any, Any], bool], right: Operand) -> Condition:
    def compared(item: Item, names: Names, values: Values) -> bool:
        one, other = left(item, names, values), right(item, names, values)
        if one is None or other is None:
            return comparison is ne and one is not other
        if one.keys() != other.keys():
            return comparison is ne
        return comparison(scalar(one), scalar(other))

    return compared


def _begins(operand: Operand, prefix: Operand) -> Condition:
    def begins(item: Item, names: Names, values: Values) -> bool:
        value, start = operand(item, names, values), prefix(item, names, values)
        return value is not None and start is not None and value["S"].startswith(start["S"])

    return begins


def _arithmetic(left: Operand, sign: str, right: Operand) -> Operand:
    def arithmetic(item: Item, names: Names, values: Values) -> dict[str, Any] | None:
        one, other = left(item, names, values), right(item, names, values)
        if one is None or other is None:
            return None
        change = _numeric(other)
        return _number(_numeric(one) + (change if sign == "+" else -change))

    return arithmetic

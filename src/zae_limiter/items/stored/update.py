"""The writes of a store of items: effects on the values of one item, under conditions on them.

The language is small, so that any store with conditional writes can carry it out: DynamoDB by
expressions (``zae_limiter.dynamodb.expressions``), a dictionary by ``holds`` and ``after`` below,
which say exactly what each word means.

A clause is a tuple: a word, the name of an attribute, and the place of a value among the values of
the write. The values stand apart: writes with equal clauses differ in their values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zae_limiter.items.stored.attributes import Item, Value, n, s
from zae_limiter.items.stored.keys import Key

Clause = tuple[Any, ...]
Given = int | str | Value
Name = str | int  # an int is the place of a name that differs between writes of one form

# Conditions: (word, name, place of the value). A comparison with an absent attribute does not hold,
# except that an absent attribute differs from every value.
AT_LEAST, AT_MOST, MORE_THAN, LESS_THAN, EQUAL, DIFFERS = ">=", "<=", ">", "<", "=", "<>"
ABSENT, PRESENT = "absent", "present"  # (word, name)
NO_ITEM, ANY_ITEM = "no item", "any item"  # (word,)
ANY_OF = "any of"  # (word, alternatives): all clauses of one of them hold

# Effects: (word, name, place). All of them see the item as it was before the write.
SET, SET_IF_ABSENT, ADD = "set", "set if absent", "add"
REMOVE = "remove"  # (word, name)
COPY = "copy"  # (word, name, source, place or None): of the value if the source is absent
SUBTRACT = "subtract"  # (word, name, first, second, place): of the value if the second is absent
SUM = "sum"  # (word, name, first, second, place): of the value for each that is absent
EFFECTS = frozenset({SET, SET_IF_ABSENT, ADD, REMOVE, COPY, SUBTRACT, SUM})


class ItemWrite:
    """The conditions of a write to one item: all of them must hold, or nothing is written."""

    __slots__ = ("clauses", "key", "names", "values")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.clauses: list[Clause] = []
        self.values: list[Given] = []
        self.names: list[str] = []

    def give(self, value: Given) -> int:
        """Return the place of a value; clauses with the same place share the value."""
        self.values.append(value)
        return len(self.values) - 1

    def term(self, word: str, name: Name, value: Given) -> Clause:
        """Return a condition, to be a part of ``any_of``."""
        return (word, name, self.give(value))

    def at_least(self, name: Name, number: int) -> None:
        self.clauses.append((AT_LEAST, name, len(self.values)))
        self.values.append(number)

    def at_most(self, name: Name, number: int) -> None:
        self.clauses.append((AT_MOST, name, len(self.values)))
        self.values.append(number)

    def more_than(self, name: Name, number: int) -> None:
        self.clauses.append((MORE_THAN, name, self.give(number)))

    def less_than(self, name: Name, value: int | str) -> None:
        self.clauses.append((LESS_THAN, name, self.give(value)))

    def equal(self, name: Name, value: Given) -> None:
        self.clauses.append((EQUAL, name, len(self.values)))
        self.values.append(value)

    def absent(self, name: Name) -> None:
        self.clauses.append((ABSENT, name))

    def present(self, name: Name) -> None:
        self.clauses.append((PRESENT, name))

    def no_item(self) -> None:
        self.clauses.append((NO_ITEM,))

    def any_item(self) -> None:
        self.clauses.append((ANY_ITEM,))

    def any_of(self, *alternatives: Sequence[Clause]) -> None:
        """Require all clauses of at least one of the alternatives."""
        self.clauses.append((ANY_OF, tuple(map(tuple, alternatives))))


class ItemUpdate(ItemWrite):
    """A change of an item, which is created if there is none.

    ``is_usual`` says that a store sees many updates with these clauses: it may keep what it has
    made of them.
    """

    __slots__ = ("is_usual",)

    def __init__(self, key: Key, *, is_usual: bool = False) -> None:
        super().__init__(key)
        self.is_usual = is_usual

    def but(self, condition: str, name: Name, value: Given) -> ItemUpdate:
        """Return the same update under one more condition."""
        other = ItemUpdate(self.key)
        other.clauses, other.values, other.names = [*self.clauses], [*self.values], self.names
        other.clauses.append(other.term(condition, name, value))
        return other

    def open_name(self, name: str) -> int:
        """Return a name that differs between updates that are alike otherwise."""
        self.names.append(name)
        return len(self.names) - 1

    def set(self, name: Name, value: Given) -> None:
        self.clauses.append((SET, name, len(self.values)))
        self.values.append(value)

    def set_all(self, attributes: Item) -> None:
        for name, value in attributes.items():
            self.set(name, value.get("S", value))

    def set_if_absent(self, name: Name, value: Given) -> None:
        self.clauses.append((SET_IF_ABSENT, name, self.give(value)))

    def add(self, name: Name, number: int) -> None:
        """Add to a number; an absent one counts as 0."""
        self.clauses.append((ADD, name, len(self.values)))
        self.values.append(number)

    def remove(self, name: Name) -> None:
        self.clauses.append((REMOVE, name))

    def copy(self, name: Name, source: Name, otherwise: int | None = None) -> None:
        """Set to the value of another attribute, or to the value of a place if it is absent."""
        self.clauses.append((COPY, name, source, otherwise))

    def subtract(self, name: Name, first: Name, second: Name, otherwise: int) -> None:
        """Set to a difference; the value of the place counts for an absent second number."""
        self.clauses.append((SUBTRACT, name, first, second, otherwise))

    def sum(self, name: Name, first: Name, second: Name, otherwise: int) -> None:
        """Set to a sum; the value of the place counts for each absent number."""
        self.clauses.append((SUM, name, first, second, otherwise))


class ItemPut(ItemWrite):
    """Replaces an item as a whole."""

    __slots__ = ("item",)

    def __init__(self, item: Item) -> None:
        super().__init__(Key.of(item))
        self.item = item


class ItemDelete(ItemWrite):
    """Deletes an item; one that does not exist is no error."""


class ItemCheck(ItemWrite):
    """Writes nothing; a group that it belongs to is written only if its conditions hold."""


# --- what the words mean


def holds(write: ItemWrite, item: Item | None) -> bool:
    """Return whether the conditions of a write hold for an item; None: there is no item."""
    return all(_holds(each, write, item) for each in write.clauses if each[0] not in EFFECTS)


def after(write: ItemWrite, item: Item | None) -> Item | None:
    """Return an item as it is after a write, whose conditions hold for it."""
    if isinstance(write, ItemPut):
        return write.item
    if isinstance(write, ItemDelete):
        return None
    if not isinstance(write, ItemUpdate):
        return item
    before = item or {}
    changed = {**write.key.attributes, **before}
    for word, *rest in write.clauses:
        if word in EFFECTS:
            name, *sources = [_name(each, write) for each in rest[: _NAMES.get(word, 1)]]
            place = rest[-1] if word != REMOVE else None
            given = None if place is None else typed(write.values[place])
            value = _EFFECTS[word](before, name, sources, given)
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = value
    return changed


_NAMES = {COPY: 2, SUBTRACT: 3, SUM: 3}  # names of an effect; others have one

# The value of an attribute after an effect; None removes it.
_EFFECTS: Mapping[str, Callable[[Item, str, list[str], Any], Value | None]] = {
    SET: lambda _before, _name, _sources, given: given,
    SET_IF_ABSENT: lambda before, name, _sources, given: before.get(name, given),
    ADD: lambda before, name, _sources, given: n(_number(before.get(name, n(0))) + _number(given)),
    REMOVE: lambda _before, _name, _sources, _given: None,
    COPY: lambda before, _name, sources, given: (
        before[sources[0]] if given is None else before.get(sources[0], given)
    ),
    SUBTRACT: lambda before, _name, sources, given: n(
        _number(before[sources[0]]) - _number(before.get(sources[1], given))
    ),
    SUM: lambda before, _name, sources, given: n(
        sum(_number(before.get(source, given)) for source in sources)
    ),
}

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    AT_LEAST: lambda stored, given: stored >= given,
    AT_MOST: lambda stored, given: stored <= given,
    MORE_THAN: lambda stored, given: stored > given,
    LESS_THAN: lambda stored, given: stored < given,
    EQUAL: lambda stored, given: stored == given,
    DIFFERS: lambda stored, given: stored != given,
}


def _holds(clause: Clause, write: ItemWrite, item: Item | None) -> bool:
    word: str = clause[0]
    rest = clause[1:]
    if word == ANY_OF:
        return any(all(_holds(each, write, item) for each in terms) for terms in rest[0])
    if word in (NO_ITEM, ANY_ITEM):
        return (item is None) == (word == NO_ITEM)
    stored = (item or {}).get(_name(rest[0], write))
    if word in (ABSENT, PRESENT):
        return (stored is None) == (word == ABSENT)
    given = typed(write.values[rest[1]])
    if stored is None or stored.keys() != given.keys():  # another type
        return word == DIFFERS
    return _COMPARISONS[word](_comparable(stored), _comparable(given))


def _name(name: Name, write: ItemWrite) -> str:
    return name if isinstance(name, str) else write.names[name]


def typed(given: Given) -> Value:
    """Return a given value as items have it."""
    if isinstance(given, dict):
        return given
    return s(given) if isinstance(given, str) else n(given)


def _comparable(value: Value) -> Any:
    ((kind, content),) = value.items()
    return int(content) if kind == "N" else content


def _number(value: Value) -> int:
    return int(value["N"])

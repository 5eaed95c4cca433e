"""Items of one table, changed by conditional writes, one at a time or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Item = dict[str, Any]


class Key(NamedTuple):
    """One item of a bucket."""

    bucket: str
    shard: int


class Within(NamedTuple):
    """The attribute exists, and lies between two numbers; None is no bound."""

    name: str
    low: int | None
    high: int | None

    def holds(self, item: Item) -> bool:
        value = item.get(self.name)
        if value is None:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


class Equals(NamedTuple):
    """The attribute has a value; None is an attribute that does not exist."""

    name: str
    value: Any

    def holds(self, item: Item) -> bool:
        return item.get(self.name) == self.value


class Below(NamedTuple):
    """The attribute is lower than a number, or does not exist."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        value = item.get(self.name)
        return value is None or value < self.bound


Condition = Within | Equals | Below


@dataclass
class Write:
    """A conditional write of one item.

    ``creates`` says that a missing item satisfies all conditions. ``effects`` tell the ledger what
    the write means; the table does not look at them.
    """

    key: Key
    conditions: list[Condition] = field(default_factory=list)
    sets: Item = field(default_factory=dict)
    adds: dict[str, int] = field(default_factory=dict)
    removes: set[str] = field(default_factory=set)
    creates: bool = False
    deletes: bool = False
    effects: list[Any] = field(default_factory=list)
    by: str = ""  # the kind of write, for messages

    def add(self, name: str, number: int) -> None:
        self.adds[name] = self.adds.get(name, 0) + number


class Applied(NamedTuple):
    """A write that was applied, with the item before and after it."""

    write: Write
    before: Item | None
    after: Item | None


class Table:
    """The items. They are never changed in place, so a client may keep what it has read."""

    def __init__(self) -> None:
        self.items: dict[Key, Item] = {}
        self.writes = 0

    def item(self, key: Key) -> Item | None:
        return self.items.get(key)

    def shards(self, bucket: str) -> list[Item | None]:
        """Return both items of a bucket; the second is None unless the bucket is split."""
        return [self.items.get(Key(bucket, shard)) for shard in (0, 1)]

    def apply(self, writes: Sequence[Write]) -> list[Applied] | None:
        """Apply all writes, or none; None if a condition does not hold."""
        if not all(self.is_met(write) for write in writes):
            return None
        self.writes += len(writes)
        return [self._apply(write) for write in writes]

    def is_met(self, write: Write) -> bool:
        item = self.items.get(write.key)
        if item is None:
            return write.creates
        return all(condition.holds(item) for condition in write.conditions)

    def _apply(self, write: Write) -> Applied:
        before = self.items.get(write.key)
        if write.deletes:
            del self.items[write.key]
            return Applied(write, before, None)
        names = [*write.sets, *write.adds, *write.removes]
        assert len(names) == len(set(names)), f"{write.by}: an attribute is changed twice"
        after = dict(before or {})
        after.update(write.sets)
        for name, number in write.adds.items():
            after[name] = after.get(name, 0) + number
        for name in write.removes:
            after.pop(name, None)
        after["wc"] = after.get("wc", 0) + 1
        self.items[write.key] = after
        return Applied(write, before, after)

"""What passed through a proxy, and what it cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})
# Apart from UpdateItem, which tests know as a write to a bucket.
USAGE, REGISTRY = "UpdateItem of usage", "UpdateItem of the registry"
WRITES = frozenset(
    {"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem", USAGE, REGISTRY}
)


def operation_of(operation: str, body: bytes) -> str:
    """The name of an operation; writes of usage rows and registries have one of their own."""
    if operation == "UpdateItem":
        for mark, name in ((b'"#USAGE#', USAGE), (b'"#RESOURCES_IN_USE', REGISTRY)):
            if mark in body:
                return name
    return operation


@dataclass(eq=False)
class Exchange:
    """One HTTP request. Times are those of ``time.monotonic()``.

    ``status`` is 0 until the client is answered; ``connection`` is the number of the client's
    connection, ``fault`` the kind of fault that befell the request.
    """

    operation: str
    connection: int
    raw_body: bytes
    started: float
    ended: float | None = None
    fault: str | None = None
    status: int = 0
    raw_answer: bytes = b""

    @property
    def body(self) -> dict[str, Any]:
        """The request as the client wrote it."""
        return _parsed(self.raw_body)

    @property
    def answer(self) -> dict[str, Any]:
        """What the store said, whether or not the client was told; empty if it was not asked."""
        return _parsed(self.raw_answer)

    @property
    def error(self) -> str:
        """The code of the store's error, or nothing."""
        return str(self.answer.get("__type", "")).rpartition("#")[2]

    @property
    def units(self) -> float:
        """Capacity that the store says it consumed, indexes included."""
        consumed = self.answer.get("ConsumedCapacity", [])
        tables = consumed if isinstance(consumed, list) else [consumed]
        return sum(float(table["CapacityUnits"]) for table in tables)


@dataclass
class Seen:
    """All that arrived while it was measured; may be read at any time."""

    requests: list[Exchange] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """HTTP requests that arrived at the socket, those that a fault befell included."""
        return len(self.requests)

    @property
    def operations(self) -> dict[str, int]:
        """How often each was called."""
        return dict(Counter(each.operation for each in self.requests))

    @property
    def wcu(self) -> float:
        """Write capacity of table and indexes. A failed condition tells none; see ``refused``."""
        return sum(each.units for each in self.requests if each.operation in WRITES)

    @property
    def rcu(self) -> float:
        """Read capacity of table and indexes."""
        return sum(each.units for each in self.requests if each.operation in READS)

    @property
    def refused(self) -> int:
        """Writes whose condition failed; AWS bills each like a write of the item."""
        return sum(each.error == "ConditionalCheckFailedException" for each in self.requests)

    @property
    def connections(self) -> int:
        """How many connections the client used."""
        return len({each.connection for each in self.requests})

    @property
    def overlap(self) -> int:
        """How many requests were under way at the same time, at most."""
        most = under_way = 0
        for _, change in sorted(self._changes()):
            under_way += change
            most = max(most, under_way)
        return most

    def of(self, operation: str) -> list[Exchange]:
        """The requests of one operation, in order of arrival."""
        return [each for each in self.requests if each.operation == operation]

    def _changes(self) -> Iterator[tuple[float, int]]:
        for each in list(self.requests):
            yield each.started, 1
            if each.ended is not None:
                yield each.ended, -1


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

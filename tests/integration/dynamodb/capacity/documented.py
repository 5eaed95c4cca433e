"""The figures of docs/reference/dynamodb-units.md."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[4] / "docs/reference/dynamodb-units.md"


class Cost(NamedTuple):
    """As AWS bills it: items are smaller than 1 KB, so a failed condition is one write unit."""

    calls: int
    wcu: float
    rcu: float

    @classmethod
    def of(cls, seen):
        return cls(seen.calls, seen.wcu + seen.refused, seen.rcu)


@cache
def documented():
    """Each row of the tables, by operation."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("|")
    ]
    return {
        operation: Cost(int(calls), float(wcu), float(rcu))
        for operation, calls, wcu, rcu, *_ in (row for row in rows if len(row) >= 4)
        if calls.isdecimal()
    }

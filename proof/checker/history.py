"""A history: the records of one run, as its processes have logged them.

A file holds one JSON object in each line. Times are nanoseconds of the machine's monotonic clock,
which all of its processes share and no fault changes. A *series* is one limit of one bucket, and
its amounts are whole numbers (tokens, or the smallest unit of a currency).

=========  ==================================================================================
``run``    subject, fault, seed; ``wall_ns`` is the wall clock minus the monotonic clock
``limit``  a series is under these terms; ``since`` is None if from the start, otherwise the
           interval in which the change was made. A change is noted without an end first, and
           stays so if its process was killed
``begin``  a process begins an operation: ``acquire`` or ``consume`` with ``takes``; ``settle``,
           ``release`` or ``exit`` with ``changes`` (debts above 0, credits below 0) of the lease
           ``of``. A settlement leaves nothing held; the lease goes on until its ``exit``
``end``    its outcome: see ``OUTCOMES``; an operation without an end was never answered
``clock``  how far the clocks of a process are from the monotonic clock: of host and limiter
``shape``  a bucket was split or merged, which rounds; a full shard wastes its refill
``fault``  a fault struck: its interval
``closed`` a process ended by itself; ``lost`` counts refunds that it could not make
``level``  a reading after the end: what can be taken of a series
``usage``  a reading after the end: what the subject has counted for a series
=========  ==================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ADMITTED, REJECTED, UNKNOWN, CANCELLED, WRITTEN = (
    "admitted",
    "rejected",
    "unknown",  # the subject could not tell, or never answered
    "cancelled",  # the caller left; nothing stays charged
    "written",
)
OUTCOMES = (ADMITTED, REJECTED, UNKNOWN, CANCELLED, WRITTEN)
DECISIONS = ("acquire", "consume")
SECOND_NS = 1_000_000_000
# A clock of whole milliseconds cannot tell times apart that are closer.
RESOLUTION_NS = 1_000_000
NEVER = 2**62  # the end of a change whose request may still arrive
UNKNOWN_END = -1  # of a change whose process was killed


@dataclass(frozen=True, slots=True)
class Terms:
    """A limit: a rate with a refill, or a quota with a calendar window.

    ``unit`` amounts are one token, or one unit of a currency. ``late_returns_ns`` is how long after
    a credit it may still admit somebody, since callers that waited were promised a later moment.
    ``is_greedy`` says that rejections are judged.
    """

    series: str
    capacity: int
    refill: int = 0
    period_ns: int = SECOND_NS
    window_ns: int | None = None
    hold_ttl_ns: int | None = None
    late_returns_ns: int = 0
    is_greedy: bool = True
    unit: int = 1
    since: tuple[int, int] | None = None

    @property
    def is_quota(self) -> bool:
        return self.window_ns is not None


@dataclass(slots=True)
class Operation:
    """A decision (acquire, consume) or a change (settle, release, exit) of a lease."""

    name: str
    process: str
    number: int
    before: int
    amounts: dict[str, int]
    of: int | None = None
    after: int | None = None
    outcome: str = UNKNOWN
    lasted_ns: int = 0

    @property
    def is_cascade(self) -> bool:
        """Whether the call charges a child and its parent."""
        return len({series.rpartition("/")[0] for series in self.amounts}) > 1

    @property
    def is_decision(self) -> bool:
        return self.name in DECISIONS

    @property
    def lease(self) -> tuple[str, int]:
        return self.process, self.number if self.of is None else self.of


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault: when it began and was over, and how often it struck."""

    name: str
    begin: int
    end: int
    firings: int


@dataclass(slots=True)
class History:
    """All records of one run. ``finish_ns`` stands for the end of what was never answered."""

    run: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, list[Terms]] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    clocks: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Struck] = field(default_factory=list)
    shapes: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)  # processes that ended by themselves
    clean: set[str] = field(default_factory=set)  # those of them that lost no refund
    levels: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and amount
    usage: dict[str, int] = field(default_factory=dict)
    finish_ns: int = 0

    @property
    def decisions(self) -> list[Operation]:
        return [each for each in self.operations if each.is_decision]

    def changes(self, series: str) -> dict[tuple[str, int], list[Operation]]:
        """Return the changes of a series by lease, in the order of their begins."""
        found: dict[tuple[str, int], list[Operation]] = {}
        for each in self.operations:
            if not each.is_decision and series in each.amounts:
                found.setdefault(each.lease, []).append(each)
        return found


def read_history(lines: Iterable[str]) -> History:
    """Join begins and ends, and widen times to what a clock of milliseconds can tell apart."""
    history, begun = History(), dict[tuple[str, int], Operation]()
    for line in lines:
        record = json.loads(line)
        _READERS[record["kind"]](history, begun, record)
    for series, terms in history.terms.items():
        history.terms[series] = _in_turn(terms)
    times = [each.after or each.before for each in history.operations]
    history.finish_ns = max(times, default=0)
    return history


def _run(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    history.run = record


def _limit(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    words = {name: value for name, value in record.items() if name not in ("kind", "process")}
    if words.get("since") is not None:
        begin, end = words["since"]
        words["since"] = begin, UNKNOWN_END if end is None else end
    terms = Terms(**words)
    history.terms.setdefault(terms.series, []).append(terms)


def _in_turn(terms: Sequence[Terms]) -> list[Terms]:
    """Return the terms in the order of their changes, each change once.

    What a killed process has sent arrives before the next process changes the limits, so a change
    without an end is over when a later one is.
    """
    first = [each for each in terms if each.since is None]
    changes: dict[int, Terms] = {}
    for each in terms:
        if each.since is not None:
            begin, end = each.since
            if begin not in changes or end != UNKNOWN_END:
                changes[begin] = each
    over, found = NEVER, []
    for begin, each in sorted(changes.items(), reverse=True):
        assert each.since is not None
        end = over if each.since[1] == UNKNOWN_END else each.since[1]
        over = min(over, end)
        found.append(replace(each, since=(begin, end)))
    return [*first, *reversed(found)]


def _begin(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    operation = Operation(
        record["op"],
        record["process"],
        record["number"],
        record["at"] // RESOLUTION_NS * RESOLUTION_NS,
        record["amounts"],
        record.get("of"),
        lasted_ns=-record["at"],
    )
    begun[operation.process, operation.number] = operation
    history.operations.append(operation)


def _end(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    operation = begun[record["process"], record["number"]]
    operation.after = -(-record["at"] // RESOLUTION_NS) * RESOLUTION_NS
    operation.outcome = record["outcome"]
    operation.lasted_ns += record["at"]


def _clock(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    history.clocks.append(record)


def _shape(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    bucket = record["bucket"]
    history.shapes[bucket] = history.shapes.get(bucket, 0) + 1


def _fault(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    struck = Struck(record["name"], record["begin"], record["end"], record["firings"])
    history.faults.append(struck)


def _closed(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    history.closed.add(record["process"])
    if not record["lost"]:
        history.clean.add(record["process"])


def _level(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    history.levels[record["series"]] = record["at"], record["amount"]


def _usage(history: History, begun: dict[Any, Operation], record: dict[str, Any]) -> None:
    history.usage[record["series"]] = record["amount"]


_READERS = {
    "run": _run,
    "limit": _limit,
    "begin": _begin,
    "end": _end,
    "clock": _clock,
    "shape": _shape,
    "fault": _fault,
    "closed": _closed,
    "level": _level,
    "usage": _usage,
}

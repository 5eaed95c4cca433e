"""The ledger of a load test: the users' own count of admissions and costs.

Each process writes a file. Afterwards all files are checked against the limits, in every window of
time (``demo.invariant`` does the arithmetic), and against the counts of the store. A ledger needs a
store that holds this load test alone, and processes that share a clock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zae_limiter_lab.demo.invariant import fullest_windows
from zae_limiter_lab.demo.log import BucketLimit, GrantLog, Moment

if TYPE_CHECKING:
    from decimal import Decimal

    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.limit import Limit

# A stamp is that of the limiter's clock, which may be this far from the host's (write-protocol.md).
CLOCK_MARGIN_MS = 50
GRANT, SETTLEMENT = "grant", "settlement"


class LedgerWriter:
    """Appends entries to the file of this process; greenlets of one thread share it."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / f"ledger-{os.getpid()}.jsonl"
        self._file = path.open("a", encoding="utf-8")

    def entry(self, entity_id: str, resource: str, amounts: Mapping[Any, int]) -> LedgerEntry:
        """Begin an entry, just before the acquire."""
        return LedgerEntry(self, entity_id, resource, {str(key): amounts[key] for key in amounts})

    def write(self, *fields: Any) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class LedgerEntry:
    """One acquire: its grant and its settlement."""

    __slots__ = ("_amounts", "_began_ms", "_entity_id", "_resource", "_writer")

    def __init__(
        self, writer: LedgerWriter, entity_id: str, resource: str, amounts: dict[str, int]
    ) -> None:
        self._writer = writer
        self._entity_id = entity_id
        self._resource = resource
        self._amounts = amounts
        self.begin()

    def begin(self) -> None:
        """Note that a call to the limiter begins."""
        self._began_ms = _now_ms()

    def granted(self) -> None:
        self._write(GRANT, self._amounts)

    def ended(self, consumed: Mapping[str, int | Decimal]) -> None:
        """Note the end of a block; ``consumed`` is its whole cost."""
        names = self._amounts.keys() | consumed.keys()
        changes = {name: consumed.get(name, 0) - self._amounts.get(name, 0) for name in names}
        if any(changes.values()):
            self._write(SETTLEMENT, changes)

    def failed(self, kept: Mapping[str, int | Decimal]) -> None:
        """Note a block that raised: everything except ``kept`` was given back."""
        self.ended(kept)

    def _write(self, kind: str, amounts: Mapping[str, int | Decimal]) -> None:
        self._writer.write(
            kind, self._entity_id, self._resource, dict(amounts), self._began_ms, _now_ms()
        )


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    """The result of a check; ``problems`` are sentences, empty if all is well."""

    admitted: int
    limits: int
    windows: int
    fullest: float  # the share of its bound that the fullest window reached
    tokens: dict[str, int]
    problems: tuple[str, ...]


def check_ledger(folder: str | Path, repository: SyncRepository) -> LedgerCheck:
    """Check the files of a folder against the limits and the usage of the store."""
    log, admitted = _read(folder, _Parents(repository))
    resources = sorted({key.resource for key in log.limits})
    limits: dict[BucketLimit, Limit] = {}
    consumed: dict[BucketLimit, int] = {}
    for resource in resources:
        for state in repository.get_resource_buckets(resource):
            key = BucketLimit(state.entity_id, resource, state.limit_name)
            limits[key] = state.limit
            consumed[key] = (state.total_consumed_milli or 0) // 1000
    problems = list(_differences(log, consumed))
    known = GrantLog()
    known.limits = {key: entries for key, entries in log.limits.items() if key in limits}
    windows = fullest_windows(known, limits)
    problems += [
        f"{window.key.entity_id} on {window.key.resource}: {window.granted + window.debts:,} of "
        f"{window.key.limit_name} in {(window.to_ms - window.from_ms) / 1000:g} s, at most "
        f"{window.allowed:,.1f} are allowed"
        for window in windows
        if not window.holds
    ]
    tokens = _totals(log)
    problems += _usage_differences(repository, resources, log)
    fullest = max((window.share for window in windows), default=0.0)
    count = sum(window.windows for window in windows)
    return LedgerCheck(admitted, len(windows), count, fullest, tokens, tuple(problems))


class _Parents:
    """Entities and the parents that are charged with them, each read once."""

    def __init__(self, repository: SyncRepository) -> None:
        self._repository = repository
        self._charged: dict[str, tuple[str, ...]] = {}

    def charged_with(self, entity_id: str) -> tuple[str, ...]:
        if entity_id not in self._charged:
            entity = self._repository.get_entity(entity_id)
            has_parent = entity is not None and entity.cascade and entity.parent_id
            parents = (str(entity.parent_id),) if entity is not None and has_parent else ()
            self._charged[entity_id] = (entity_id, *parents)
        return self._charged[entity_id]


def _read(folder: str | Path, parents: _Parents) -> tuple[GrantLog, int]:
    log, admitted = GrantLog(), 0
    for kind, entity_id, resource, amounts, began_ms, done_ms in _entries(Path(folder)):
        moment = Moment(began_ms - CLOCK_MARGIN_MS, done_ms + CLOCK_MARGIN_MS)
        add = log.add_grant if kind == GRANT else log.add_settlement
        add(parents.charged_with(entity_id), resource, amounts, moment)
        admitted += kind == GRANT
    return log, admitted


def _entries(folder: Path) -> Iterator[list[Any]]:
    for path in sorted(folder.glob("ledger-*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _differences(log: GrantLog, consumed: Mapping[BucketLimit, int]) -> Iterator[str]:
    """Yield a sentence for each limit whose bucket and users have different counts."""
    for key, entries in log.limits.items():
        stored = consumed.get(key, 0)
        if stored != entries.used:
            yield (
                f"{key.entity_id} on {key.resource}: users counted {entries.used:,} of "
                f"{key.limit_name}, the bucket {stored:,}"
            )


def _totals(log: GrantLog) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for key, entries in log.limits.items():
        tokens[key.limit_name] = tokens.get(key.limit_name, 0) + entries.used
    return tokens


def _usage_differences(
    repository: SyncRepository, resources: list[str], log: GrantLog
) -> list[str]:
    """Return a sentence for each resource whose usage report differs from the users' count."""
    problems = []
    for resource in resources:
        summary = repository.get_usage_summary(resource=resource)
        reported = {
            name: amount + summary.through_children.get(name, 0)
            for name, amount in summary.total.items()
        }
        counted: dict[str, int] = {}
        for key, entries in log.limits.items():
            if key.resource == resource:
                counted[key.limit_name] = counted.get(key.limit_name, 0) + entries.used
        problems += [
            f"{resource}: users counted {counted[name]:,} of {name}, usage says "
            f"{reported.get(name, 0):,}"
            for name in counted
            if counted[name] != reported.get(name, 0)
        ]
    return problems


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

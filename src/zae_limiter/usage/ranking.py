"""The largest consumers of a span of time, computed from stored hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from heapq import nsmallest
from typing import Any
from zlib import crc32

from zae_limiter.admission.image import HOUR_MS
from zae_limiter.admission.usage import BucketHour, HourUsage
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.notation import parse_period
from zae_limiter.models.timestamps import iso_from_ms
from zae_limiter.models.usage import EntityUsage, UsageRanking, WindowType
from zae_limiter.usage.report import ShownNames, UsageQuery, UsageReport

MAX_RANKED = 1000  # entities in one ranking
MAX_COUNTED = 50_000  # entities that are added up in one pass, which takes about 40 MB


def hours_of_last(last: str | timedelta, now_ms: int) -> UsageQuery:
    """Return the hours of the last day, week or other span, including the running hour."""
    try:
        span = last if isinstance(last, timedelta) else timedelta(seconds=parse_period(last))
    except (ValidationError, TypeError, OverflowError):
        span = timedelta(0)
    if span <= timedelta(0):
        raise ValidationError("last", last, "must be a span of time such as 24h, 7d or 90min")
    span_ms = span // timedelta(milliseconds=1)
    start_hour = max(0, (now_ms - span_ms) // HOUR_MS)
    return UsageQuery((WindowType.HOURLY,), start_hour, now_ms // HOUR_MS + 1, now_ms)


class TopUsage(UsageReport):
    """Finds the ``limit`` largest consumers and parents, by a limit or by admitted acquires.

    The ranking is exact, and its memory is bounded: if there are more than ``max_counted``
    entities, only a part of them is added up in one pass, and the hours are read again for the
    other parts. So call ``begin_pass()`` before each pass, and while it returns True, add all hours
    in any order.
    """

    def __init__(
        self, query: UsageQuery, by: str | None, limit: int, max_counted: int = MAX_COUNTED
    ) -> None:
        super().__init__(query)
        self._by = by
        self._limit = min(limit, MAX_RANKED)
        self._max_counted = max_counted
        # A part (divisor, remainder) has the entities whose hash leaves that remainder.
        self._parts = [(1, 0)]
        self._divisor, self._remainder = 1, 0
        self._sums: dict[str, HourUsage] = {}
        self._consumers: list[EntityUsage] = []
        self._parents: list[EntityUsage] = []
        self._limit_names: set[str] = set()

    def begin_pass(self) -> bool:
        """Rank the entities of the last pass; return whether another pass is needed."""
        self._rank()
        if not self._parts:
            return False
        self._divisor, self._remainder = self._parts.pop()
        return True

    def add(self, rows: Iterable[BucketHour]) -> None:
        for row in rows:
            entity_id, usage = row.entity_id, row.usage
            if self._is_in_part(entity_id):
                total = self._sums.get(entity_id)
                self._sums[entity_id] = usage if total is None else total.plus(usage)
                if len(self._sums) > self._max_counted:
                    self._halve()

    def _is_in_part(self, entity_id: str) -> bool:
        return crc32(entity_id.encode()) % self._divisor == self._remainder

    def _halve(self) -> None:
        """Leave half of the entities to a later pass."""
        self._divisor *= 2
        self._parts.append((self._divisor, self._remainder + self._divisor // 2))
        self._sums = {name: sums for name, sums in self._sums.items() if self._is_in_part(name)}

    def _rank(self) -> None:
        usages = [_entity_usage(entity_id, usage) for entity_id, usage in self._sums.items()]
        self._sums = {}
        self._limit_names.update(
            name for usage in usages for name, amount in usage.counters.items() if amount
        )
        parents = [
            usage
            for usage in usages
            if any(usage.through_children.values()) and used_amount(usage, self._by) > 0
        ]
        consumers = [usage for usage in usages if own_amount(usage, self._by) > 0]
        self._parents = self._first([*self._parents, *parents], used_amount)
        self._consumers = self._first([*self._consumers, *consumers], own_amount)

    def _first(
        self, usages: list[EntityUsage], amount: Callable[[EntityUsage, str | None], Any]
    ) -> list[EntityUsage]:
        def rank(usage: EntityUsage) -> tuple[Any, str]:
            return -amount(usage, self._by), usage.entity_id

        return nsmallest(self._limit, usages, key=rank)

    def end(self) -> UsageRanking:
        """Return the ranking, after the last pass."""
        return UsageRanking(
            by=self._by,
            start_time=iso_from_ms(self.query.start_hour * HOUR_MS),
            end_time=iso_from_ms(self.query.end_hour * HOUR_MS),
            consumers=self._consumers,
            parents=self._parents,
            limit_names=tuple(sorted(self._limit_names)),
        )


def _entity_usage(entity_id: str, usage: HourUsage) -> EntityUsage:
    names = ShownNames.of({**usage.used, **usage.through_children})
    return EntityUsage(
        entity_id,
        names.amounts(usage.used),
        names.amounts(usage.through_children),
        usage.admitted,
        usage.tally.rejected,
        usage.tally.waited,
        dict(names.currencies),
        usage.tally.shadowed,
        usage.tally.elsewhere,
        usage.tally.rejected_elsewhere,
    )


def used_amount(usage: EntityUsage, by: str | None) -> Any:
    """Return the whole usage of an entity: tokens of the limit ``by``, or admitted acquires."""
    return usage.total_events if by is None else usage.counters.get(by, 0)


def own_amount(usage: EntityUsage, by: str | None) -> Any:
    """Return the usage of an entity without that of its children: tokens, or calls."""
    if by is None:
        return usage.calls
    return usage.counters.get(by, 0) - usage.through_children.get(by, 0)

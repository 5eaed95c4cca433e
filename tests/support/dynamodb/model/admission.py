"""What all clients together may take from a bucket, recomputed from the writes alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sim.reference import Pot
from tests.support.dynamodb.model.expressions import Item
from tests.support.dynamodb.model.ledger import Bucket, Wrong, bucket_of, stamp_s
from tests.support.dynamodb.model.table import Change

ROUNDING_MILLI = 4  # of each write, split or merge


@dataclass
class _Limit(Pot):
    """In millitokens and seconds."""

    writes: int = 0

    def bring_to(self, at_s: float, terms: tuple[int, int, int]) -> None:
        """Let time pass, and another limit apply. A write may be older than the last one."""
        self.turn(terms, max(self.since, at_s))


class AdmissionCheck:
    """Never more than capacity and accrual, for clients whose clocks agree and that owe nothing.

    A write may be applied later than it was stamped: what accrues meanwhile is allowed for.
    """

    def __init__(self) -> None:
        self._limits: dict[tuple[Bucket, str], _Limit] = {}
        self._delay_s: dict[Bucket, float] = {}
        self._shards: dict[Bucket, set[str]] = {}

    def follow(self, changes: list[Change]) -> None:
        for change in changes:
            bucket = bucket_of(change.key)
            if bucket is None:
                continue
            live = self._shards.setdefault(bucket, set())
            if change.new is None:
                live.discard(change.key[0])
                if not live:
                    self._forget(bucket, change)
                continue
            live.add(change.key[0])
            self._follow(bucket, change.old, change.new, change.at_s)

    def _follow(self, bucket: Bucket, old: Item | None, new: Item, at_s: float) -> None:
        if old is None or old.get("nb") == new.get("nb"):  # a pause keeps the time of the last use
            delay_s = at_s - stamp_s(new["op"]["S"]) + 1
            self._delay_s[bucket] = max(self._delay_s.get(bucket, 0.0), delay_s)
        dropped = [name for name in old or () if name.startswith("c_") and name not in new]
        for name in dropped:  # absent is full
            self._limits.pop((bucket, name[2:]), None)
        for name in new:
            if not name.startswith("c_") or new[f"p_{name[2:]}"]["S"].startswith("q:"):
                continue
            key = name[2:]
            capacity, refill, period = new[f"p_{key}"]["S"].split(":")[:3]
            terms = (int(capacity) * 1000, int(refill or capacity) * 1000, int(period))
            limit = self._limits.get((bucket, key))
            if limit is None:
                limit = self._limits[bucket, key] = _Limit(*terms, at_s, Fraction(terms[0]))
            limit.bring_to(at_s, terms)
            taken = int(new[name]["N"]) - (int(old[name]["N"]) if old and name in old else 0)
            if dropped:  # counts under another name what was taken before
                taken = 0
            limit.writes += 1
            limit.take(taken, limit.since)
            delay_s = self._delay_s.get(bucket, 0.0)
            slack = Fraction(limit.refill) * Fraction(delay_s) / limit.period
            if taken > 0 and limit.value < -slack - ROUNDING_MILLI * limit.writes:
                raise Wrong(f"{bucket} {key}: {float(limit.value)} is left after {taken}")

    def _forget(self, bucket: Bucket, change: Change) -> None:
        for place in [place for place in self._limits if place[0] == bucket]:
            limit = self._limits.pop(place)
            if change.by_ttl:
                level = limit.level(max(limit.since, change.at_s))
                if level < limit.capacity - ROUNDING_MILLI * limit.writes:
                    raise Wrong(f"{place} expires with {float(level)} of {limit.capacity}")

"""What all clients together may take from a bucket, recomputed from the writes alone."""

from __future__ import annotations

from fractions import Fraction

from tests.support.dynamodb.model.expressions import Item
from tests.support.dynamodb.model.ledger import Bucket, Wrong, bucket_of, stamp_s
from tests.support.dynamodb.model.table import Change

ROUNDING_MILLI = 4  # of each write, split or merge


class _Limit:
    def __init__(self, parameters: tuple[int, ...], at_s: float) -> None:
        self.capacity, self.refill, self.period_s = parameters
        self.level = Fraction(self.capacity)
        self.at_s = at_s
        self.writes = 0

    def until(self, at_s: float) -> None:
        gained = Fraction(self.refill) * Fraction(max(0.0, at_s - self.at_s)) / self.period_s
        self.level = min(Fraction(self.capacity), self.level + gained)
        self.at_s = max(self.at_s, at_s)

    def change(self, parameters: tuple[int, ...]) -> None:
        if parameters != (self.capacity, self.refill, self.period_s):
            self.level = min(self.level, Fraction(parameters[0]))
            self.capacity, self.refill, self.period_s = parameters
            self.level = min(self.level, Fraction(self.capacity))


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
            if not name.startswith("c_"):
                continue
            key = name[2:]
            capacity, refill, period = new[f"p_{key}"]["S"].split(":")[:3]
            parameters = (int(capacity) * 1000, int(refill or capacity) * 1000, int(period))
            limit = self._limits.get((bucket, key))
            if limit is None:
                limit = self._limits[bucket, key] = _Limit(parameters, at_s)
            limit.until(at_s)
            limit.change(parameters)
            taken = int(new[name]["N"]) - (int(old[name]["N"]) if old and name in old else 0)
            if dropped:  # counts under another name what was taken before
                taken = 0
            limit.writes += 1
            limit.level = min(Fraction(limit.capacity), limit.level - taken)
            delay_s = self._delay_s.get(bucket, 0.0)
            slack = Fraction(limit.refill) * Fraction(delay_s) / limit.period_s
            if taken > 0 and limit.level < -slack - ROUNDING_MILLI * limit.writes:
                raise Wrong(f"{bucket} {key}: {float(limit.level)} is left after {taken}")

    def _forget(self, bucket: Bucket, change: Change) -> None:
        for place in [place for place in self._limits if place[0] == bucket]:
            limit = self._limits.pop(place)
            if change.by_ttl:
                limit.until(change.at_s)
                if limit.level < limit.capacity - ROUNDING_MILLI * limit.writes:
                    raise Wrong(f"{place} expires with {float(limit.level)} of {limit.capacity}")

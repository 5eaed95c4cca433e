"""What the callers themselves know about their calls: how much, and when.

Kept beside the limiter, never asked of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zae_limiter.clock import Clock


class Moment(NamedTuple):
    """When a call to the limiter took place.

    It was judged at a stamp from ``first_ms`` to ``last_ms``, and its effect took place in the
    store between ``first_ms`` and ``done_ms``.
    """

    first_ms: int
    last_ms: int
    done_ms: int


def steady_clock() -> Clock:
    """Epoch milliseconds that only ever go on."""
    anchor_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (anchor_ns + time.monotonic_ns()) // 1_000_000


class Stopwatch:
    """The clock of one caller, who makes one call at a time: it notes when it was read.

    A limiter judges a call at a stamp that it reads from its clock during the call, maybe in
    another thread. When it reads it once, or within one millisecond, the stamp is known exactly.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before_ms = 0
        self._reads: list[int] = []

    def __call__(self) -> int:
        now_ms = self._clock()
        self._reads.append(now_ms)
        return now_ms

    def start(self) -> None:
        """A call to the limiter begins."""
        self._reads.clear()
        self._before_ms = self._clock()

    def stop(self) -> Moment:
        """It has returned."""
        done_ms = self._clock()
        if not self._reads:  # it took its time from elsewhere, but from within the call
            return Moment(self._before_ms, done_ms, done_ms)
        return Moment(self._reads[0], self._reads[-1], done_ms)


class BucketLimit(NamedTuple):
    """One limit of one bucket."""

    entity_id: str
    resource: str
    limit_name: str


class Entry(NamedTuple):
    """Tokens that changed hands."""

    tokens: int
    moment: Moment


@dataclass(slots=True)
class LimitLog:
    """All that happened to one limit of one bucket, in no particular order."""

    grants: list[Entry] = field(default_factory=list)  # admitted by the limiter
    debts: list[Entry] = field(default_factory=list)  # taken afterwards, never refused
    credits: list[Entry] = field(default_factory=list)  # given back

    @property
    def used(self) -> int:
        """Net tokens taken."""
        return sum(
            sum(entry.tokens for entry in entries) * sign
            for entries, sign in ((self.grants, 1), (self.debts, 1), (self.credits, -1))
        )

    @property
    def given_back(self) -> int:
        return sum(entry.tokens for entry in self.credits)


class GrantLog:
    """Grants, debts and credits of every limit of every bucket."""

    def __init__(self) -> None:
        self.limits: dict[BucketLimit, LimitLog] = {}

    def of(self, key: BucketLimit) -> LimitLog:
        return self.limits.setdefault(key, LimitLog())

    def granted(
        self, entity_ids: Iterable[str], resource: str, amounts: Mapping[str, int], moment: Moment
    ) -> None:
        """The limiter admitted a call: every bucket named was charged."""
        for entity_id in entity_ids:
            for name, tokens in amounts.items():
                if tokens:
                    key = BucketLimit(entity_id, resource, name)
                    self.of(key).grants.append(Entry(tokens, moment))

    def settled(
        self, entity_ids: Iterable[str], resource: str, amounts: Mapping[str, int], moment: Moment
    ) -> None:
        """A call turned out dearer (positive) or cheaper (negative) than admitted."""
        for entity_id in entity_ids:
            for name, tokens in amounts.items():
                log = self.of(BucketLimit(entity_id, resource, name))
                if tokens > 0:
                    log.debts.append(Entry(tokens, moment))
                elif tokens < 0:
                    log.credits.append(Entry(-tokens, moment))

    def without_debts(self) -> GrantLog:
        """The same log where nobody knows which debts were written."""
        copy = GrantLog()
        copy.limits = {
            key: LimitLog(log.grants, [], log.credits) for key, log in self.limits.items()
        }
        return copy

"""The callers' own log of their calls: how many tokens, and when. The limiter has no part in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zae_limiter.clock import Clock


class Moment(NamedTuple):
    """When a call to the limiter took place.

    Its stamp was between ``first_ms`` and ``last_ms``; it was written to the store between
    ``first_ms`` and ``done_ms``.
    """

    first_ms: int
    last_ms: int
    done_ms: int


def steady_clock() -> Clock:
    """Return a clock of epoch milliseconds that never goes back."""
    anchor_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (anchor_ns + time.monotonic_ns()) // 1_000_000


class Stopwatch:
    """The clock that one caller gives to its limiter; notes the times that were read.

    A limiter takes the stamp of a call from its clock during the call, maybe in another thread.
    If it reads the clock once, or within one millisecond, the stamp is known exactly. A caller
    makes one call at a time.
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
        """Note that a call to the limiter begins."""
        self._reads.clear()
        self._before_ms = self._clock()

    def stop(self) -> Moment:
        """Return the moment of the call, which has just returned."""
        done_ms = self._clock()
        if not self._reads:  # the stamp is from another clock, but from within the call
            return Moment(self._before_ms, done_ms, done_ms)
        return Moment(self._reads[0], self._reads[-1], done_ms)


class BucketLimit(NamedTuple):
    """One limit of one bucket."""

    entity_id: str
    resource: str
    limit_name: str


class LogEntry(NamedTuple):
    """Tokens that were charged, owed or given back by one call."""

    tokens: int
    moment: Moment


@dataclass(slots=True)
class LimitLog:
    """The entries of one limit of one bucket, in no particular order."""

    grants: list[LogEntry] = field(default_factory=list)  # admitted by the limiter
    debts: list[LogEntry] = field(default_factory=list)  # taken by settlements, never refused
    credits: list[LogEntry] = field(default_factory=list)  # given back

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

    def entries(self, key: BucketLimit) -> LimitLog:
        return self.limits.setdefault(key, LimitLog())

    def add_grant(
        self, entity_ids: Iterable[str], resource: str, amounts: Mapping[str, int], moment: Moment
    ) -> None:
        """Add an admitted call, charged to every one of the entities."""
        for entity_id in entity_ids:
            for name, tokens in amounts.items():
                if tokens:
                    key = BucketLimit(entity_id, resource, name)
                    self.entries(key).grants.append(LogEntry(tokens, moment))

    def add_settlement(
        self, entity_ids: Iterable[str], resource: str, amounts: Mapping[str, int], moment: Moment
    ) -> None:
        """Add the difference to the estimate: debts are positive, credits negative."""
        for entity_id in entity_ids:
            for name, tokens in amounts.items():
                log = self.entries(BucketLimit(entity_id, resource, name))
                if tokens > 0:
                    log.debts.append(LogEntry(tokens, moment))
                elif tokens < 0:
                    log.credits.append(LogEntry(-tokens, moment))

    def without_debts(self) -> GrantLog:
        """Return a copy without debts, for runs in which some of them were not written."""
        copy = GrantLog()
        copy.limits = {
            key: LimitLog(log.grants, [], log.credits) for key, log in self.limits.items()
        }
        return copy

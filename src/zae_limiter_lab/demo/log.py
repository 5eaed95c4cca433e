"""The callers' own log of their calls: tokens and times. The limiter has no part in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Moment(NamedTuple):
    """The span of a call to the limiter: its stamp and its write lie between these times."""

    began_ms: int
    done_ms: int


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
    def given_back(self) -> int:
        return sum(entry.tokens for entry in self.credits)

    @property
    def used(self) -> int:
        """Return the net tokens taken."""
        return sum(entry.tokens for entry in (*self.grants, *self.debts)) - self.given_back


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

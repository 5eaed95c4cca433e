"""What a run of the demo came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zae_limiter.demo.invariant import Violation, Window, fullest_windows
from zae_limiter.demo.log import BucketLimit, GrantLog
from zae_limiter.demo.scenario import RESOURCE, Member, Project, members
from zae_limiter.demo.traffic import Tally
from zae_limiter.models.limit import Limit


@dataclass(frozen=True, slots=True)
class LimitUse:
    """One limit of one entity against what it allowed: its capacity and what it regained."""

    limit: Limit
    used: int  # net: a debt at the end shows as more than was allowed
    given_back: int
    allowed: int
    refused: int  # calls that this limit had too little for


@dataclass(frozen=True, slots=True)
class EntityResult:
    """One project or key. A project counts the calls of its keys."""

    entity_id: str
    name: str
    parent_id: str | None
    admitted: int
    limited: int
    adjusted: int
    failed: int
    limits: tuple[LimitUse, ...]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The whole run."""

    engine: str
    seconds: float
    entities: tuple[EntityResult, ...]
    windows: tuple[Window, ...]  # the fullest of each limit
    lost_settlements: int

    @property
    def projects(self) -> tuple[EntityResult, ...]:
        return tuple(each for each in self.entities if each.parent_id is None)

    @property
    def admitted(self) -> int:
        return sum(each.admitted for each in self.projects)

    @property
    def limited(self) -> int:
        return sum(each.limited for each in self.projects)

    @property
    def adjusted(self) -> int:
        return sum(each.adjusted for each in self.projects)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.projects)

    @property
    def acquires(self) -> int:
        return self.admitted + self.limited

    @property
    def acquires_per_second(self) -> float:
        return self.acquires / self.seconds

    @property
    def violations(self) -> list[Violation]:
        return [window for window in self.windows if not window.holds]

    @property
    def holds(self) -> bool:
        return not self.violations


def demo_result(
    engine: str,
    cast: tuple[Project, ...],
    tallies: Mapping[str, Tally],
    log: GrantLog,
    elapsed_ms: int,
    lost_settlements: int,
) -> DemoResult:
    """Sum up, and check."""
    limits = {
        BucketLimit(each.entity_id, RESOURCE, limit.name): limit
        for each in members(cast)
        for limit in each.limits
    }
    # A debt that an outage kept from being written took nothing, and nobody knows which it was.
    certain = log.without_debts() if lost_settlements else log
    return DemoResult(
        engine,
        elapsed_ms / 1000,
        tuple(_entity(each, tallies[each.entity_id], log, elapsed_ms) for each in members(cast)),
        tuple(fullest_windows(certain, limits)),
        lost_settlements,
    )


def _entity(member: Member, tally: Tally, log: GrantLog, elapsed_ms: int) -> EntityResult:
    return EntityResult(
        member.entity_id,
        member.name,
        member.parent_id,
        tally.admitted,
        tally.limited,
        tally.adjusted,
        tally.failed,
        tuple(_use(member.entity_id, limit, tally, log, elapsed_ms) for limit in member.limits),
    )


def _use(entity_id: str, limit: Limit, tally: Tally, log: GrantLog, elapsed_ms: int) -> LimitUse:
    entries = log.of(BucketLimit(entity_id, RESOURCE, limit.name))
    regained = limit.refill_amount * elapsed_ms // (limit.refill_period_seconds * 1000)
    return LimitUse(
        limit,
        entries.used,
        entries.given_back,
        limit.capacity + regained,
        tally.refused_by[limit.name],
    )

"""The result of a demo run: what each entity was admitted, and the check of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zae_limiter.models.limit import Limit
from zae_limiter_lab.demo.invariant import Violation, Window, fullest_windows
from zae_limiter_lab.demo.log import BucketLimit, GrantLog
from zae_limiter_lab.demo.scenario import RESOURCE, DemoEntity, Project, all_entities
from zae_limiter_lab.demo.traffic import CallCounts


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What one entity used of one limit, and what it was allowed: capacity plus refill."""

    limit: Limit
    used: int  # net; with a debt at the end, more than was allowed
    given_back: int
    allowed: int
    refused: int  # calls rejected because this limit had too little


@dataclass(frozen=True, slots=True)
class EntityResult:
    """The counters of one project or key. A project counts the calls of its keys."""

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
    """The counters of a whole run, and the windows that were checked."""

    engine: str
    seconds: float
    entities: tuple[EntityResult, ...]
    windows: tuple[Window, ...]  # the fullest window of each limit
    lost_settlements: int

    @property
    def projects(self) -> tuple[EntityResult, ...]:
        return tuple(entity for entity in self.entities if entity.parent_id is None)

    @property
    def admitted(self) -> int:
        return sum(project.admitted for project in self.projects)

    @property
    def limited(self) -> int:
        return sum(project.limited for project in self.projects)

    @property
    def adjusted(self) -> int:
        return sum(project.adjusted for project in self.projects)

    @property
    def failed(self) -> int:
        return sum(project.failed for project in self.projects)

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
    *,
    engine: str,
    projects: tuple[Project, ...],
    counts: Mapping[str, CallCounts],
    log: GrantLog,
    elapsed_ms: int,
    lost_settlements: int,
) -> DemoResult:
    """Sum up a run, and check its log."""
    entities = all_entities(projects)
    limits = {
        BucketLimit(entity.entity_id, RESOURCE, limit.name): limit
        for entity in entities
        for limit in entity.limits
    }
    # A debt that was not written because of an outage took nothing, and which one is unknown.
    checked_log = log.without_debts() if lost_settlements else log
    return DemoResult(
        engine=engine,
        seconds=elapsed_ms / 1000,
        entities=tuple(
            _entity_result(entity, counts[entity.entity_id], log, elapsed_ms) for entity in entities
        ),
        windows=tuple(fullest_windows(checked_log, limits)),
        lost_settlements=lost_settlements,
    )


def _entity_result(
    entity: DemoEntity, counts: CallCounts, log: GrantLog, elapsed_ms: int
) -> EntityResult:
    return EntityResult(
        entity_id=entity.entity_id,
        name=entity.name,
        parent_id=entity.parent_id,
        admitted=counts.admitted,
        limited=counts.limited,
        adjusted=counts.adjusted,
        failed=counts.failed,
        limits=tuple(
            _limit_use(entity.entity_id, limit, counts, log, elapsed_ms) for limit in entity.limits
        ),
    )


def _limit_use(
    entity_id: str, limit: Limit, counts: CallCounts, log: GrantLog, elapsed_ms: int
) -> LimitUse:
    entries = log.entries(BucketLimit(entity_id, RESOURCE, limit.name))
    refilled = limit.refill_amount * elapsed_ms // (limit.refill_period_seconds * 1000)
    return LimitUse(
        limit=limit,
        used=entries.used,
        given_back=entries.given_back,
        allowed=limit.capacity + refilled,
        refused=counts.refused_by[limit.name],
    )

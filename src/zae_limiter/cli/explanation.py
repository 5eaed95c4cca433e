"""Why the next acquire would be answered as it would: resolution, state and answer, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zae_limiter.cli.inspection import last_used_hour
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import ConfigSource

if TYPE_CHECKING:
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit
    from zae_limiter.models.status import Availability, LimitStatus


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the resolution; the first with limits wins whole."""

    source: ConfigSource
    limits: tuple[Limit, ...]
    wins: bool


@dataclass(frozen=True, slots=True)
class Resolution:
    """All levels for one of the entities that an acquire concerns."""

    entity_id: str
    levels: tuple[Level, ...]
    last_used_hour: str | None

    @property
    def source(self) -> ConfigSource | None:
        return next((level.source for level in self.levels if level.wins), None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """``availability`` is None where the acquire would be refused as wrong: see ``problem``."""

    entity_id: str
    resource: str
    entity: Entity | None
    consume: dict[str, int]
    resolutions: tuple[Resolution, ...]  # the entity's, and its parent's if that is charged too
    availability: Availability | None
    problem: str | None

    @property
    def answer(self) -> str:
        """``admitted``, ``limited`` or ``error``: what the next acquire is answered."""
        if self.availability is None:
            return "error"
        return "admitted" if self.availability.available else "limited"

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that do not have enough, the one that takes longest first."""
        found = () if self.availability is None else self.availability.statuses
        short = (status for status in found if status.exceeded)
        return tuple(sorted(short, key=lambda each: -each.retry_after_seconds))


def explain(
    limiter: SyncRateLimiter,
    entity_id: str,
    resource: str,
    consume: Mapping[str, int] | None = None,
) -> Explanation:
    """What an acquire of ``consume`` would be answered now; by default of 1 of each limit."""
    repository = limiter.repository
    assert repository is not None, "explained on an open repository"
    entity = repository.get_entity(entity_id)
    wanted = dict(consume or {})
    availability, problem = None, None
    try:
        if not consume:
            wanted = dict.fromkeys(limiter.available(entity_id, resource), 1)
        availability = limiter.check_availability(entity_id, resource, wanted)
    except ValidationError as error:
        problem = _in_words(error)
    whose = [entity_id]
    if entity is not None and entity.cascade and entity.parent_id is not None:
        whose.append(entity.parent_id)
    resolutions = tuple(_resolution(repository, each, resource) for each in whose)
    return Explanation(entity_id, resource, entity, wanted, resolutions, availability, problem)


def _in_words(error: ValidationError) -> str:
    if error.field == "limits":
        return f"{error.reason.partition(';')[0]}; store some: zae-limiter system set-defaults"
    return f"{error.field.removeprefix('needed.')!r} {error.reason}"


def _resolution(repository: SyncRepository, entity_id: str, resource: str) -> Resolution:
    system, _ = repository.get_system_defaults()
    stored = {
        ConfigSource.ENTITY: repository.get_limits(entity_id, resource),
        ConfigSource.ENTITY_DEFAULT: repository.get_limits(entity_id),
        ConfigSource.RESOURCE: repository.get_resource_defaults(resource),
        ConfigSource.SYSTEM: system,
    }
    _, _, winner = repository.resolve_limits(entity_id, resource)
    levels = tuple(
        Level(source, tuple(limits), source is winner) for source, limits in stored.items()
    )
    return Resolution(entity_id, levels, last_used_hour(repository, entity_id, resource))

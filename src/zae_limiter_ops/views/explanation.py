"""Predict the answer to the next acquire, from the limits in force and the bucket levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.config import ConfigSource
from zae_limiter.refusal import limited_by
from zae_limiter_ops.views.advice import GivenOptions
from zae_limiter_ops.views.columns import plain_values
from zae_limiter_ops.views.entities import charged_entities
from zae_limiter_ops.views.formatting import limits_json, list_or_none, seconds_json
from zae_limiter_ops.views.limit_view import last_used_hour
from zae_limiter_ops.views.modes import ModeView
from zae_limiter_ops.views.names import is_known_entity, is_known_resource
from zae_limiter_ops.views.recent_rejections import RecentRejections, recent_rejections

if TYPE_CHECKING:
    from zae_limiter._sync.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.entity import Entity
    from zae_limiter.models.limit import Limit
    from zae_limiter.models.status import Availability, LimitStatus
    from zae_limiter.refusal import LimitedBy

Bucket = tuple[str, str]  # entity and resource


@dataclass(frozen=True, slots=True)
class LevelView:
    """One configuration level; the first one with limits provides all limits in force."""

    source: ConfigSource
    limits: tuple[Limit, ...]
    wins: bool
    is_hidden: bool  # it has limits, but an earlier level wins

    @property
    def verdict(self) -> str:
        """``in force``, ``hidden``, or empty for a level without limits."""
        if self.wins:
            return "in force"
        return "hidden" if self.is_hidden else ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The configuration levels for one of the buckets that an acquire charges."""

    entity_id: str
    resource: str
    levels: tuple[LevelView, ...]
    last_used_hour: str | None
    mode: ModeView

    @property
    def source(self) -> ConfigSource | None:
        return next((level.source for level in self.levels if level.wins), None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer that an acquire would get, with the limits and levels that lead to it.

    If the acquire would raise a ValidationError, ``availability`` is None and ``problem`` is the
    reason. ``recent`` are the rejections of the key in this hour or the last; None without any.
    """

    entity_id: str
    resource: str
    entity: Entity | None
    consume: dict[str, Any]
    also: dict[Bucket, dict[str, Any]]  # amounts of further resources
    resolutions: tuple[Resolution, ...]  # of all charged buckets, each before that of its parent
    availability: Availability | None
    problem: str | None
    consume_source: str  # given, rejected (the largest rejected amounts) or default (1 of each)
    entity_known: bool  # it was created, has limits of its own, or has buckets
    resource_known: bool  # it has limits or buckets
    recent: RecentRejections | None = None
    has_wrong_amounts: bool = False  # the problem is in the given amounts, not in the stored limits

    @property
    def answer(self) -> str:
        """The answer to the next acquire: ``admitted``, ``limited`` or ``error``."""
        if self.availability is None:
            return "error"
        return "admitted" if self.availability.available else "limited"

    @property
    def limited_by(self) -> LimitedBy | None:
        """What refuses the acquire; None if it would be admitted."""
        return limited_by(self.violations)

    @property
    def last_limited_by(self) -> LimitedBy | None:
        """What refused the last call of the key that was rejected in this hour or the last."""
        return None if self.recent is None else self.recent.last_limited_by

    @property
    def asks_the_last_refuser(self) -> bool:
        """Whether the acquire asks the bucket that refused the last rejected call."""
        last = self.last_limited_by
        asked = [(each.entity_id, each.resource) for each in self.resolutions]
        return last is None or last[:2] in asked

    @property
    def several(self) -> bool:
        """Whether the acquire asks for tokens of several resources."""
        return bool(self.also)

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that do not have enough, longest wait first."""
        statuses = () if self.availability is None else self.availability.statuses
        exceeded = (status for status in statuses if status.exceeded)
        return tuple(sorted(exceeded, key=lambda status: -status.retry_after_seconds))


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the JSON of an explanation."""
    answer, entity = explanation.availability, explanation.entity
    return {
        "entity_id": explanation.entity_id,
        "resource": explanation.resource,
        "exists": entity is not None,
        "entity_known": explanation.entity_known,
        "resource_known": explanation.resource_known,
        "parent_id": entity.parent_id if entity else None,
        "cascade": entity.cascade if entity else False,
        "consume": plain_values(explanation.consume),
        "consume_source": explanation.consume_source,
        "also": [
            {"entity_id": owner, "resource": resource, "consume": plain_values(amounts)}
            for (owner, resource), amounts in explanation.also.items()
        ],
        "resolution": [
            {
                "entity_id": resolution.entity_id,
                "resource": resolution.resource,
                "source": resolution.source,
                "last_used_hour": resolution.last_used_hour,
                **resolution.mode.to_dict(),
                "levels": [
                    {
                        "source": level.source,
                        "limits": limits_json(level.limits),
                        "wins": level.wins,
                    }
                    for level in resolution.levels
                ],
            }
            for resolution in explanation.resolutions
        ],
        "answer": explanation.answer,
        "retry_after_seconds": None if answer is None else seconds_json(answer.retry_after_seconds),
        "limited_by": list_or_none(explanation.limited_by),
        "last_limited_by": list_or_none(explanation.last_limited_by),
        "last_rejected_at": explanation.recent and explanation.recent.last_rejected_at,
        "problem": explanation.problem,
        "limits": [] if answer is None else [status.as_dict() for status in answer.statuses],
    }


def explain_acquire(
    limiter: SyncRateLimiter,
    entity_id: str,
    resource: str,
    consume: Mapping[str, Any] | None = None,
    also: Mapping[Bucket, dict[str, Any]] | None = None,
    *,
    given: GivenOptions,
) -> Explanation:
    """Explain an acquire of ``consume``, and of ``also`` from further resources, made now.

    By default the acquire asks for the largest rejected amount of each limit in this hour and the
    last, and for 1 token of the other limits: for a billionth of the currency unit of budgets.
    ``given`` makes the commands that a problem suggests.
    """
    repository = limiter.repository
    assert repository is not None, "explained on an open repository"
    entity = repository.get_entity(entity_id)
    wanted = dict(consume or {})
    recent = recent_rejections(repository, entity_id, resource).get((entity_id, resource))
    availability, problem, source = None, None, "given"
    has_wrong_amounts = False
    try:
        if not consume:
            source = "default"
            asked = {} if recent is None else recent.asked
            names = limiter.available(entity_id, resource)
            wanted = {name: asked.get(name, _least(level)) for name, level in names.items()}
            source = "rejected" if any(name in asked for name in names) else "default"
        availability = limiter.check_availability(entity_id, resource, wanted, also=also or None)
    except ValidationError as error:
        problem, has_wrong_amounts = _describe(error, given), error.field != "limits"
    buckets = [(entity_id, resource), *(also or {})]
    return Explanation(
        entity_id=entity_id,
        resource=resource,
        entity=entity,
        consume=wanted,
        consume_source=source,
        also=dict(also or {}),
        resolutions=_resolutions(repository, buckets),
        availability=availability,
        problem=problem,
        entity_known=entity is not None or is_known_entity(repository, entity_id),
        resource_known=is_known_resource(repository, resource),
        recent=recent,
        has_wrong_amounts=has_wrong_amounts,
    )


def _least(level: int | Decimal) -> int | Decimal:
    """Return the smallest amount of a limit whose level is known: 1, or a billionth of money."""
    return 1 if isinstance(level, int) else Decimal("0.000000001")


def _describe(error: ValidationError, given: GivenOptions) -> str:
    if error.field == "limits":
        reason = error.reason.partition(";")[0]
        return f"{reason}; store some: {given.command('system', 'set-defaults')}"
    return f"{error.field.removeprefix('needed.')!r} {error.reason}"


def _resolutions(repository: SyncRepository, buckets: list[Bucket]) -> tuple[Resolution, ...]:
    """Return the configuration levels of every bucket that an acquire charges."""
    charged: dict[Bucket, Resolution] = {}
    for entity_id, resource in buckets:
        for charged_id in charged_entities(entity_id, repository.get_entity(entity_id)):
            bucket = charged_id, resource
            charged[bucket] = charged.get(bucket) or _resolution(repository, *bucket)
    return tuple(charged.values())


def _resolution(repository: SyncRepository, entity_id: str, resource: str) -> Resolution:
    system, _ = repository.get_system_defaults()
    stored = {
        ConfigSource.ENTITY: repository.get_limits(entity_id, resource),
        ConfigSource.ENTITY_DEFAULT: repository.get_limits(entity_id),
        ConfigSource.RESOURCE: repository.get_resource_defaults(resource),
        ConfigSource.SYSTEM: system,
    }
    _, _, winner = repository.resolve_limits(entity_id, resource)
    levels: list[LevelView] = []
    for source, limits in stored.items():
        is_hidden = bool(limits) and any(level.wins for level in levels)
        levels.append(LevelView(source, tuple(limits), source is winner, is_hidden))
    last = last_used_hour(repository, entity_id, resource)
    mode = ModeView.of(repository, entity_id, resource)
    return Resolution(entity_id, resource, tuple(levels), last, mode)

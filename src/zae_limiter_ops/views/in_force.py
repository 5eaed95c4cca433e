"""Limits and modes in force of listed buckets, without reading all of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter_ops.views.modes import ModeView

if TYPE_CHECKING:
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.models.bucket import BucketState
    from zae_limiter.models.limit import Limit

Place = tuple[str, str]  # the entity and the resource of a bucket

FEW = 100  # buckets of a listing whose configuration is read one by one


def changed_buckets(
    states: Iterable[BucketState], limits_of: Callable[[str, str], Iterable[Limit]]
) -> set[Place]:
    """Return the buckets that were last charged under other limits than those in force."""
    changed = set()
    for place, group in groupby(states, _place):
        # The stored limit of a name comes first; calls have passed the others.
        stored = {state.limit_name: state.limit for state in reversed(list(group))}
        if any(stored.get(limit.name, limit) != limit for limit in limits_of(*place)):
            changed.add(place)
    return changed


def as_in_force(
    repository: SyncRepository, states: Iterable[BucketState], changed: Collection[Place]
) -> Iterator[BucketState]:
    """Yield the same buckets, the changed ones as their next acquire finds them."""
    for place, group in groupby(states, _place):
        yield from repository.get_bucket_in_force(*place) if place in changed else group


def _place(state: BucketState) -> Place:
    return state.entity_id, state.resource


@dataclass(slots=True)
class LimitsInForce:
    """The limits in force for the buckets of one listing, and their modes.

    A bucket has the limits that it was last charged under, until its next charge. The configuration
    of the first ``few`` buckets is read one by one. A longer listing reads the lists of the
    entities that have limits of their own, so that all other buckets cost no read.
    """

    few: int = FEW
    _looked_up: int = 0
    _own: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    _defaults: dict[tuple[str, str], list[Limit]] = field(default_factory=dict)
    _modes: dict[tuple[str, str], ModeView] = field(default_factory=dict)

    def applied(self, repository: SyncRepository, states: list[BucketState]) -> list[BucketState]:
        """Return the same buckets, those with other limits as their next acquire finds them."""
        changed = changed_buckets(states, partial(self._limits, repository))
        return list(as_in_force(repository, states, changed))

    def mode(self, repository: SyncRepository, entity_id: str, resource: str) -> ModeView:
        """Return the mode of a bucket whose limits were looked up before."""
        if self._looked_up <= self.few or self._has_own(repository, entity_id, resource):
            return ModeView.of(repository, entity_id, resource)
        key = repository.namespace_name, resource
        if key not in self._modes:
            self._modes[key] = ModeView.of_resource(repository, resource)
        return self._modes[key]

    def _limits(self, repository: SyncRepository, entity_id: str, resource: str) -> list[Limit]:
        self._looked_up += 1
        if self._looked_up > self.few and not self._has_own(repository, entity_id, resource):
            return self._resource_limits(repository, resource)
        limits, _, _ = repository.resolve_limits(entity_id, resource)
        return limits or []

    def _has_own(self, repository: SyncRepository, entity_id: str, resource: str) -> bool:
        for name in (resource, DEFAULT_RESOURCE):
            key = repository.namespace_name, name
            if key not in self._own:
                self._own[key] = frozenset(repository.list_entities_with_custom_limits(name)[0])
            if entity_id in self._own[key]:
                return True
        return False

    def _resource_limits(self, repository: SyncRepository, resource: str) -> list[Limit]:
        key = repository.namespace_name, resource
        if key not in self._defaults:
            limits = repository.get_resource_defaults(resource)
            self._defaults[key] = limits or repository.get_system_defaults()[0]
        return self._defaults[key]

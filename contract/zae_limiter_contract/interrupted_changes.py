"""Ctrl-C during a change of configuration, which is made wholly or not at all; sync tree only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from zae_limiter._sync.repository import SyncRepository
from zae_limiter.models.limit import Limit
from zae_limiter_contract._sync.base import Contract
from zae_limiter_contract._sync.world import API, USER, World
from zae_limiter_contract.signal_points import SAMPLED_OR_ALL, InterruptAt, positions

OLD, NEW = Limit.per_minute("rpm", 10), Limit.per_minute("rpm", 20)
Change = Callable[[SyncRepository], object]


def set_limits(repository: SyncRepository) -> None:
    repository.set_limits(USER, [NEW])


def delete_limits(repository: SyncRepository) -> None:
    repository.delete_limits(USER)


def delete_entity(repository: SyncRepository) -> None:
    repository.delete_entity(USER)


def set_parent(repository: SyncRepository) -> None:
    repository.set_parent(USER, "team")


def reset_bucket(repository: SyncRepository) -> None:
    repository.reset_bucket(USER, API)


def top_up(repository: SyncRepository) -> None:
    repository.top_up(USER, API, {"rpm": 2})


CHANGES: list[Change] = [
    set_limits,
    delete_limits,
    delete_entity,
    set_parent,
    reset_bucket,
    top_up,
]


class InterruptedChangeContract(Contract):
    """The change, its audit event and the configuration cache agree."""

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @SAMPLED_OR_ALL
    @pytest.mark.parametrize("change", CHANGES)
    def test_an_interrupted_change_is_made_and_logged_or_neither(
        self, world: World, change: Change, thorough: bool
    ) -> None:
        logged = _prepare(world)
        before = _seen(world, logged)
        logged = _prepare(world)
        change(world.repo)
        after = _seen(world, logged)
        tried = positions(world.spec.capabilities, thorough=thorough)
        faults = list(_faults(world, tried, change, (before, after)))
        assert not faults, "\n".join(["an interrupt at these points does harm:", *faults])


def _faults(
    world: World, tried: Iterator[int], change: Change, allowed: tuple[object, object]
) -> Iterator[str]:
    for position in tried:
        logged = _prepare(world)
        interrupt = InterruptAt(position)
        with suppress(KeyboardInterrupt), interrupt:
            change(world.repo)
        if interrupt.struck is None:
            return
        if "config_cache.py" in interrupt.struck:  # forgetting is interrupted: old for the TTL
            world.repo.invalidate_config_cache()
        found = _seen(world, logged)
        if found not in allowed:
            yield f"{interrupt.struck}: {found} is neither {allowed[0]} nor {allowed[1]}"


def _prepare(world: World) -> int:
    """Make an entity with limits and a bucket that lacks five tokens; count its events."""
    world.configure(Limit.per_minute("rpm", 5))
    world.repo.delete_entity(USER)
    world.repo.create_entity(USER)
    world.repo.set_limits(USER, [OLD])
    world.take(rpm=5)
    return len(world.repo.get_audit_events(USER, 10_000))


def _seen(world: World, logged: int) -> tuple[object, ...]:
    """Return the stored state, the number of events since, and the repository's own view."""
    repo = world.repo
    entity = repo.get_entity(USER)
    return (
        entity is not None,
        entity and entity.parent_id,
        repo.get_limits(USER),
        [state.tokens for state in repo.get_buckets(USER)],
        [event.action for event in repo.get_audit_events(USER, 10_000)[:-logged]],
        world.limiter.available(USER, API),
    )

"""A run of the demo: set up, let the callers loose, watch, sum up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from zae_limiter._async.repository import Repository
from zae_limiter.demo.log import GrantLog, steady_clock
from zae_limiter.demo.result import DemoResult, demo_result
from zae_limiter.demo.scenario import KEY_LIMITS, RESOURCE, Project, members, projects
from zae_limiter.demo.traffic import Stage, Tally, callers

PRINCIPAL = "zae-limiter demo"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How long, how many, and which dice."""

    seconds: float = 10.0
    tenants: int = 4
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """A look at a run under way."""

    seconds: float
    of_seconds: float
    cast: tuple[Project, ...]
    tallies: dict[str, Tally]
    levels: dict[tuple[str, str], int]  # whole tokens by entity and limit; absent means full

    @property
    def total(self) -> Tally:
        """Over all tenants."""
        mine = [self.tallies[project.entity_id] for project in self.cast]
        return Tally(
            sum(tally.admitted for tally in mine),
            sum(tally.limited for tally in mine),
            sum(tally.adjusted for tally in mine),
            sum(tally.failed for tally in mine),
        )


Watch = Callable[[Progress], None]


async def run_demo(
    repository: Repository,
    options: DemoOptions,
    watch: Watch | None = None,
    watch_seconds: float = 1.0,
) -> DemoResult:
    """Run on an open repository whose namespace holds none of the demo's entities yet.

    ``watch`` is shown the progress every ``watch_seconds``. Stopped by cancelling it; calls
    under way then give back what they took.
    """
    cast = projects(options.tenants)
    await _set_up(repository, cast)
    now, clock = asyncio.get_running_loop().time(), steady_clock()
    stage = Stage(
        repository,
        GrantLog(),
        {member.entity_id: Tally() for member in members(cast)},
        clock,
        starts_at=now,
        ends_at=now + options.seconds,
    )
    started_ms, lost_before = clock(), repository.lost_settlements
    try:
        async with asyncio.TaskGroup() as tasks:
            for project in cast:
                for key in project.keys:
                    for caller in callers(key, stage, options.seed):
                        tasks.create_task(caller.run())
            if watch is not None:
                tasks.create_task(_watch(stage, cast, watch, watch_seconds))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return demo_result(
        repository.capabilities.engine,
        cast,
        stage.tallies,
        stage.log,
        clock() - started_ms,
        repository.lost_settlements - lost_before,
    )


async def _set_up(repository: Repository, cast: tuple[Project, ...]) -> None:
    """Keys fall back on the defaults of the resource unless they have limits of their own."""
    await repository.set_resource_defaults(RESOURCE, KEY_LIMITS, principal=PRINCIPAL)
    for project in cast:
        await repository.create_entity(project.entity_id, principal=PRINCIPAL)
        await repository.set_limits(
            project.entity_id, project.limits, RESOURCE, principal=PRINCIPAL
        )
        for key in project.keys:
            await repository.create_entity(
                key.entity_id, parent_id=project.entity_id, cascade=True, principal=PRINCIPAL
            )
            if key.limits != KEY_LIMITS:
                await repository.set_limits(
                    key.entity_id, key.limits, RESOURCE, principal=PRINCIPAL
                )


async def _watch(
    stage: Stage, cast: tuple[Project, ...], watch: Watch, watch_seconds: float
) -> None:
    """Show the progress in step with the clock, the last time at the end."""
    loop = asyncio.get_running_loop()
    of_seconds = stage.ends_at - stage.starts_at
    looks, shown = int(of_seconds / watch_seconds + 1e-6), 0
    while shown < looks:
        await asyncio.sleep(stage.starts_at + (shown + 1) * watch_seconds - loop.time())
        states = await stage.repository.get_resource_buckets(RESOURCE)
        levels = {(state.entity_id, state.limit_name): state.tokens for state in states}
        elapsed = loop.time() - stage.starts_at
        shown = max(shown + 1, int(elapsed / watch_seconds))
        watch(Progress(min(elapsed, of_seconds), of_seconds, cast, stage.tallies, levels))

"""A run of the demo: open a temporary store, run the callers, report progress, sum up."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.exceptions import InfrastructureError
from zae_limiter_lab.demo.log import GrantLog, steady_clock
from zae_limiter_lab.demo.result import DemoResult, demo_result
from zae_limiter_lab.demo.scenario import KEY_LIMITS, RESOURCE, Project, all_entities, make_projects
from zae_limiter_lab.demo.traffic import CallCounts, TrafficContext, callers

logger = logging.getLogger(__name__)

PRINCIPAL = "zae-limiter demo"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Duration, number of tenants and random seed of a run."""

    seconds: float = 10.0
    tenants: int = 4
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Counters and bucket levels of a run under way."""

    seconds: float
    of_seconds: float
    projects: tuple[Project, ...]
    counts: dict[str, CallCounts]
    levels: dict[tuple[str, str], int]  # whole tokens by entity and limit; absent means full

    @property
    def total(self) -> CallCounts:
        """The sum over all tenants."""
        counts = [self.counts[project.entity_id] for project in self.projects]
        return CallCounts(
            sum(count.admitted for count in counts),
            sum(count.limited for count in counts),
            sum(count.adjusted for count in counts),
            sum(count.failed for count in counts),
        )


Watch = Callable[[Progress], None]


@asynccontextmanager
async def demo_repository(url: str | None) -> AsyncIterator[Repository]:
    """Open a new namespace of the store at ``url``, or a new SQLite file in a temporary folder.

    It is removed afterwards.
    """
    namespace = f"demo-{secrets.token_hex(4)}"
    if url is not None:
        async with await Repository.open(namespace, url=url, provision="never") as repository:
            try:
                yield repository
            finally:
                await _remove(repository, namespace)
        return
    with TemporaryDirectory(prefix="zae-limiter-demo-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "demo.db"
        async with await Repository.open(namespace, url=f"sqlite:///{quote(str(file))}") as opened:
            yield opened


async def _remove(repository: Repository, namespace: str) -> None:
    try:
        await repository.purge_namespace(await repository.delete_namespace(namespace))
    except InfrastructureError as error:
        logger.warning(
            "the demo's namespace %r could not be removed and stays in the store; delete and "
            "purge it with zae-limiter namespace: %s",
            namespace,
            error,
        )


async def run_demo(
    repository: Repository,
    options: DemoOptions,
    watch: Watch | None = None,
    watch_seconds: float = 1.0,
    *,
    clock: Clock | None = None,
) -> DemoResult:
    """Run on an open repository whose namespace holds none of the demo's entities yet.

    ``watch`` is called with the progress every ``watch_seconds``. To stop the run, cancel it;
    calls under way then give back what they took. ``clock`` returns epoch milliseconds.
    """
    projects = make_projects(options.tenants)
    await _set_up(repository, projects)
    clock = clock or steady_clock()
    now = asyncio.get_running_loop().time()
    context = TrafficContext(
        repository=repository,
        log=GrantLog(),
        counts={entity.entity_id: CallCounts() for entity in all_entities(projects)},
        clock=clock,
        starts_at=now,
        ends_at=now + options.seconds,
    )
    started_ms, lost_before = clock(), repository.lost_settlements
    try:
        async with asyncio.TaskGroup() as tasks:
            for project in projects:
                for key in project.keys:
                    for caller in callers(key, context, options.seed):
                        tasks.create_task(caller.run())
            if watch is not None:
                tasks.create_task(_watch(context, projects, watch, watch_seconds))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return demo_result(
        engine=repository.capabilities.engine,
        projects=projects,
        counts=context.counts,
        log=context.log,
        elapsed_ms=clock() - started_ms,
        lost_settlements=repository.lost_settlements - lost_before,
    )


async def _set_up(repository: Repository, projects: tuple[Project, ...]) -> None:
    """Store entities and limits; keys without limits of their own use the resource defaults."""
    await repository.set_resource_defaults(RESOURCE, KEY_LIMITS, principal=PRINCIPAL)
    for project in projects:
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
    context: TrafficContext, projects: tuple[Project, ...], watch: Watch, watch_seconds: float
) -> None:
    """Report the progress at whole multiples of ``watch_seconds``; skip those that are missed."""
    loop = asyncio.get_running_loop()
    of_seconds = context.ends_at - context.starts_at
    # The addend keeps 0.3 / 0.1, a little less than 3 in floating point, from losing a report.
    reports, reported = int(of_seconds / watch_seconds + 1e-6), 0
    while reported < reports:
        await asyncio.sleep(context.starts_at + (reported + 1) * watch_seconds - loop.time())
        states = await context.repository.get_resource_buckets(RESOURCE)
        levels = {(state.entity_id, state.limit_name): state.tokens for state in states}
        elapsed = loop.time() - context.starts_at
        reported = max(reported + 1, int(elapsed / watch_seconds))
        watch(Progress(min(elapsed, of_seconds), of_seconds, projects, context.counts, levels))

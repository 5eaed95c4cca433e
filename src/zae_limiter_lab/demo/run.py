"""A run of the demo: open a temporary store, run the callers, report progress, check the log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from zae_limiter._async.repository import Repository
from zae_limiter.clock import Clock
from zae_limiter.exceptions import InfrastructureError, NamespaceNotFoundError
from zae_limiter.store_url import parse_url
from zae_limiter_lab.demo.invariant import Window, fullest_windows
from zae_limiter_lab.demo.log import BucketLimit
from zae_limiter_lab.demo.scenario import KEY_LIMITS, RESOURCE, DemoEntity, make_entities
from zae_limiter_lab.demo.traffic import DemoOptions, DemoRun, callers

logger = logging.getLogger(__name__)

PRINCIPAL = "zae-limiter demo"
# Nobody waits for these calls, so a slow store or a busy machine makes the demo slower. With the
# default of a limiter it would end in an error.
REQUEST_TIMEOUT_S = 20.0
FIRST_ANSWER_S = 3.0


Watch = Callable[[DemoRun], None]


@asynccontextmanager
async def demo_repository(url: str | None) -> AsyncIterator[Repository]:
    """Open a new namespace of the store at ``url``, or a new SQLite file in a temporary folder.

    The namespace or the file is removed afterwards.
    """
    namespace = f"demo-{secrets.token_hex(4)}"
    if url is not None:
        if parse_url(url).engine == "dynamodb":
            await _hear_from(namespace, url)
        opening = Repository.open(
            namespace, url=url, provision="never", request_timeout=REQUEST_TIMEOUT_S
        )
        async with await opening as repository:
            try:
                yield repository
            finally:
                await _remove(repository, namespace)
        return
    with TemporaryDirectory(prefix="zae-limiter-demo-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "demo.db"
        opening = Repository.open(
            namespace, url=f"sqlite:///{quote(str(file))}", request_timeout=REQUEST_TIMEOUT_S
        )
        async with await opening as repository:
            yield repository


async def _hear_from(namespace: str, url: str) -> None:
    """Raise soon if the store does not answer: the demo itself is more patient."""
    builder = Repository.builder().namespace(namespace).url(url).provision("never")
    with suppress(NamespaceNotFoundError):
        async with await builder.request_timeout(FIRST_ANSWER_S).build():
            pass


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
) -> DemoRun:
    """Run on an open repository whose namespace holds none of the demo's entities yet.

    ``watch`` is called with the run every ``watch_seconds``. To stop the run, cancel it; calls
    under way then give back their tokens. ``clock`` returns epoch milliseconds.
    """
    clock = clock or steady_clock()
    await _set_up(repository, make_entities(options.tenants))
    run = DemoRun(repository, options, clock)
    started_ms, lost_before = clock(), repository.lost_settlements
    try:
        async with asyncio.TaskGroup() as tasks:
            for key in run.entities:
                if key.habit is not None:
                    for caller in callers(key, key.habit, run):
                        tasks.create_task(caller.run())
            if watch is not None:
                tasks.create_task(_watch(repository, run, watch, watch_seconds))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    run.seconds = (clock() - started_ms) / 1000
    run.lost_settlements = repository.lost_settlements - lost_before
    run.windows = _check(run)
    return run


def _check(run: DemoRun) -> list[Window]:
    limits = {
        BucketLimit(entity.entity_id, RESOURCE, limit.name): limit
        for entity in run.entities
        for limit in entity.limits
    }
    # A debt that was lost in an outage took nothing, and it is unknown which one was lost.
    log = run.log.without_debts() if run.lost_settlements else run.log
    return fullest_windows(log, limits)


def steady_clock() -> Clock:
    """Return a clock of epoch milliseconds that never goes back."""
    anchor_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (anchor_ns + time.monotonic_ns()) // 1_000_000


async def _set_up(repository: Repository, entities: list[DemoEntity]) -> None:
    """Store entities and limits; keys without limits of their own use the resource defaults."""
    await repository.set_resource_defaults(RESOURCE, KEY_LIMITS, principal=PRINCIPAL)
    for entity in entities:
        await repository.create_entity(
            entity.entity_id,
            parent_id=entity.parent_id,
            cascade=entity.parent_id is not None,
            principal=PRINCIPAL,
        )
        if entity.limits != KEY_LIMITS:
            await repository.set_limits(
                entity.entity_id, entity.limits, RESOURCE, principal=PRINCIPAL
            )


async def _watch(repository: Repository, run: DemoRun, watch: Watch, watch_seconds: float) -> None:
    """Report the progress at whole multiples of ``watch_seconds``."""
    now = asyncio.get_running_loop().time
    # The addend keeps 0.3 / 0.1, a little less than 3 in floating point, from losing a report.
    for number in range(int(run.options.seconds / watch_seconds + 1e-6)):
        await asyncio.sleep(run.starts_at + (number + 1) * watch_seconds - now())
        states = await repository.get_resource_buckets(RESOURCE)
        run.levels = {(state.entity_id, state.limit_name): state.tokens for state in states}
        run.seconds = min(now() - run.starts_at, run.options.seconds)
        watch(run)

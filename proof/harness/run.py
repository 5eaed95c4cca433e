"""One run: a store, processes that use it, a fault, and the history that they leave."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

from proof.harness.diary import Diary, now_ns
from proof.harness.faults import FAULTS, PEACE_S, Fault, Scene, set_offset
from proof.harness.plan import MEMORY, OURS, SQLITE, Plan
from proof.harness.processes import Worker
from proof.harness.stores import Store, open_store

# The last part of a run, without faults: long enough for clients to try again.
RECOVERY_S = 2.5
# Default of rejection_cache_ttl: how long a process may not know of the refunds of another one.
CREDITS_SEEN_WITHIN_NS = 1_000_000_000


def run(plan: Plan, history: Path) -> None:
    """Carry out a plan and write its history, compressed."""
    folder = Path(tempfile.mkdtemp(prefix="proof-"))
    try:
        try:
            _run(plan, folder)
        finally:
            _collect(folder, history)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(plan: Plan, folder: Path) -> None:
    fault = FAULTS[plan.fault]
    diary = Diary(folder / "0-run.jsonl", "harness")
    diary.tell(
        "run",
        subject=plan.subject,
        fault=plan.fault,
        seed=plan.seed,
        wall_ns=time.time_ns() - now_ns(),
        credits_seen_within_ns=CREDITS_SEEN_WITHIN_NS,
    )
    with open_store(plan, folder) as store:
        plan = plan.with_urls(store.url, store.other_url)
        plan.save(folder / "plan.json")
        _tell_terms(plan, diary)
        if plan.subject in OURS and plan.subject != MEMORY:
            asyncio.run(_prepare(plan))
        _work(plan, fault, store, folder, diary)
        if plan.subject in OURS and plan.subject != MEMORY:
            asyncio.run(_audit(plan, diary))
    diary.close()


def _work(plan: Plan, fault: Fault, store: Store, folder: Path, diary: Diary) -> None:
    chance = Random(f"{plan.seed}.fault")
    offsets = [folder / f"offset-{number}" for number in range(plan.processes)]
    for path in offsets:
        set_offset(path, chance.uniform(-1.5, 1.5) if fault.has_offsets else 0)
    with ExitStack() as stack:
        workers = []
        for number, path in enumerate(offsets):
            workers.append(Worker(folder, number, fault.environment(path), fault.prefix))
            stack.callback(workers[-1].end)
        for worker in workers:
            worker.ready()
        for worker in workers:
            worker.go()
        began = time.monotonic()
        time.sleep(PEACE_S)
        ends = began + plan.seconds - RECOVERY_S
        fault.strike(Scene(store, workers, diary, chance, folder, ends, offsets))
        time.sleep(max(0.0, began + plan.seconds - time.monotonic()))
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.done()


def _tell_terms(plan: Plan, diary: Diary) -> None:
    if plan.subject in OURS:
        from proof.harness.audit import tell_terms

        tell_terms(plan, diary)
    else:
        from proof.harness.peers import tell_terms as tell_peers_terms

        tell_peers_terms(plan, diary)


async def _prepare(plan: Plan) -> None:
    from proof.harness.audit import prepare
    from proof.harness.opening import open_patient

    # A table that is not in use yet takes its retention from who provisions it.
    is_provisioned = plan.subject == SQLITE or plan.has_expiring_buckets
    async with await open_patient(plan, "table" if is_provisioned else "never") as repo:
        await prepare(plan, repo)


async def _audit(plan: Plan, diary: Diary) -> None:
    from proof.harness.audit import QUIET_S, read
    from proof.harness.opening import open_patient

    await asyncio.sleep(QUIET_S)
    async with await open_patient(plan) as repo:
        await read(plan, repo, diary)


def _collect(folder: Path, history: Path) -> None:
    """Put the lines of all diaries into one file."""
    history.parent.mkdir(parents=True, exist_ok=True)
    partial = history.with_suffix(".part")
    with gzip.open(partial, "wt", compresslevel=3) as file:
        for path in sorted(folder.glob("*.jsonl")):
            with path.open() as diary:
                shutil.copyfileobj(diary, file)
    partial.rename(history)


def lines_of(history: Path) -> Iterator[str]:
    with gzip.open(history, "rt") as file:
        yield from file

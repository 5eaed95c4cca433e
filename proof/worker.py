"""One process of a run: ``python -m proof.worker FOLDER NUMBER INCARNATION``.

It says ``ready``, works from the line ``go`` on, and says ``done`` when its time is over or when it
is told to ``stop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from proof.harness.diary import Diary
from proof.harness.plan import MEMORY, OURS, Plan

if TYPE_CHECKING:
    from zae_limiter import Repository

TRIED_EVERY_S = 0.1


def main(folder: Path, number: int, incarnation: int) -> None:
    """Run the workload of one process."""
    plan = Plan.load(folder / "plan.json")
    name = f"{number}.{incarnation}"
    diary = Diary(folder / f"process-{name}.jsonl", name)
    if plan.subject in OURS:
        asyncio.run(_own(plan, number, diary))
    else:
        from proof.harness import peers

        asyncio.run(peers.run(plan, diary, _say, _orders))
    diary.close()
    _say("done")


async def _own(plan: Plan, number: int, diary: Diary) -> None:
    from proof.harness import audit
    from proof.harness.workload import Workload

    url = plan.other_url if number == 0 else plan.url
    async with await _opened(url, plan) as repo:
        is_alone = plan.subject == MEMORY  # what it keeps, no other process can read
        if is_alone:
            await audit.prepare(plan, repo)
        workload = Workload(plan, number, diary, repo)
        _say("ready")
        await _orders(workload.stop)
        await workload.run()
        lost = repo.lost_settlements
        if is_alone:
            await asyncio.sleep(audit.QUIET_S)
            await audit.read(plan, repo, diary)
    diary.tell("closed", lost=lost)


async def _opened(url: str, plan: Plan) -> Repository:
    """Open the store; if the process has no right to write to it, try until it has."""
    from proof.harness.opening import open_worker
    from zae_limiter import PermissionDenied

    was_refused = False
    while True:
        try:
            return await open_worker(plan, url)
        except PermissionDenied:
            if not was_refused:
                _say("refused")
            was_refused = True
            await asyncio.sleep(TRIED_EVERY_S)


async def _orders(stop) -> None:  # noqa: ANN001
    """Wait for ``go``; then a thread waits for ``stop``."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)

    def listen() -> None:
        sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=listen, daemon=True).start()


def _say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""The shield of the async tree. It has a module of its own because it imports asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from zae_limiter.concurrency.parallel import Parallel, aoutcome_of, results_of

T = TypeVar("T")


class FinishingTask(asyncio.Task[T]):
    """A task that goes on if it is cancelled, also at the end of its event loop, which waits."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


async def ashield(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the call to its end; a cancellation of the caller is raised afterwards.

    The call runs in a task of its own. So it must not depend on the task that it started in.
    """
    if type(asyncio.current_task()) is FinishingTask:
        return await call()
    task = FinishingTask(call())
    try:
        # A caller that is cancelled goes on to wait, since asyncio asks the task to end and is
        # refused. It raises the cancellation in the caller at the next step.
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that the exception was never retrieved
        raise


async def agather_shielded(
    parallel: Parallel, *calls: Callable[[], Coroutine[Any, Any, T]]
) -> list[T]:
    """Run the calls side by side, as ``agather`` does, for a caller that is under a shield."""
    tasks = [FinishingTask(aoutcome_of(call)) for call in calls[1:]]
    first = await aoutcome_of(calls[0])
    return results_of([first, *[await task for task in tasks]])

"""The shield of the async tree. It has a module of its own because it imports asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from zae_limiter.concurrency.parallel import Parallel, aoutcome_of, results_of

T = TypeVar("T")


def ashield(call: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run the call to its end; a cancellation of the caller is raised afterwards."""
    return Shield().run(call)


class ShieldedFuture(asyncio.Future[T]):
    """A future that stays pending if the task that awaits it under a shield is cancelled.

    ``Task.cancel`` cancels the future that the task awaits. Under a shield, ``cancel`` of this
    future returns True, and the shield notes the cancellation and raises it later.
    """

    __slots__ = ("_shield",)
    _shield: Shield

    def cancel(self, msg: Any | None = None) -> bool:
        shield = getattr(self, "_shield", None)
        if shield is None or self.done():
            return super().cancel(msg)
        shield.cancellation = asyncio.CancelledError(*([] if msg is None else [msg]))
        return True


class Shield:
    """Runs a coroutine to its end in the caller's task, without the cost of a task of its own.

    This works as long as the coroutine awaits only ShieldedFutures. As soon as it awaits anything
    else, it is continued in another task. So a coroutine under a shield must not depend on the task
    that it started in: an ``asyncio.timeout``, for example, needs a task of its own.
    """

    cancellation: asyncio.CancelledError | None = None

    @coroutine
    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """Return the result of the call, or raise a cancellation that came meanwhile."""
        work = call()
        try:
            awaited = work.send(None)
            while type(awaited) is ShieldedFuture:
                awaited._shield = self  # noqa: SLF001 - part of this module
                while True:
                    try:
                        yield awaited
                    except asyncio.CancelledError as error:
                        self.cancellation = error
                    except Exception:  # noqa: BLE001 - `send` below raises the future's error
                        pass
                    if awaited.done():
                        break
                    next(awaited.__await__())  # a task accepts a future only after a new await
                awaited = work.send(None)
            result: T = yield from _continue_in_task(work, awaited).__await__()
        except StopIteration as end:
            result = end.value
        except (Exception, asyncio.CancelledError):
            if self.cancellation is not None:
                self._raise_cancellation()
            raise
        if self.cancellation is not None:
            self._raise_cancellation()
        return result

    def _raise_cancellation(self) -> None:
        cancellation, self.cancellation = self.cancellation, None
        assert cancellation is not None
        try:
            raise cancellation from None
        finally:
            del cancellation  # its traceback holds this frame


async def _continue_in_task(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Continue a coroutine in a new task; a cancellation of the caller is raised at its end."""
    task = asyncio.ensure_future(_as_coroutine(work, awaited))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that the exception was never retrieved
        raise


async def _as_coroutine(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _continue(work, awaited)


@coroutine
def _continue(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Drive a coroutine that has already yielded the future it awaits."""
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - raised inside of the coroutine
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def agather_shielded(
    parallel: Parallel, *calls: Callable[[], Coroutine[Any, Any, T]]
) -> list[T]:
    """Run the calls side by side, as ``agather`` does, for a caller that is under a shield.

    The first call runs in the caller's task. Each of the others has a task and a shield of its own,
    since the end of an event loop cancels every task.
    """
    tasks = [asyncio.ensure_future(aoutcome_of(partial(ashield, call))) for call in calls[1:]]
    outcomes = [await aoutcome_of(calls[0])]
    for task in tasks:
        await _end_of(task)
        outcomes.append(task.result())
    return results_of(outcomes)


def _end_of(task: asyncio.Future[Any]) -> ShieldedFuture[None]:
    """Return a future that is done when the task is."""
    end: ShieldedFuture[None] = ShieldedFuture()

    def note(_: asyncio.Future[Any]) -> None:
        if not end.done():
            end.set_result(None)

    task.add_done_callback(note)
    return end

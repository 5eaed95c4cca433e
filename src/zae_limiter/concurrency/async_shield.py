"""The shield of the async tree; apart from `shield` because it imports asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from zae_limiter.concurrency.parallel import Parallel

T = TypeVar("T")


def ashield(call: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
    """Run the call to completion; a cancellation of the caller is raised after that."""
    return Shield().run(call)


class ShieldedFuture(asyncio.Future[T]):
    """A future that is not cancelled together with the task that awaits it under a shield.

    ``Task.cancel`` cancels the future that the task awaits. Under a shield this future returns
    True and stays pending; the shield notes the cancellation and raises it later.
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

    That works while it awaits ShieldedFutures only; as soon as it awaits anything else, it is
    continued in another task. So a coroutine under a shield must not depend on the task that it
    started in: an ``asyncio.timeout`` needs a task of its own.
    """

    cancellation: asyncio.CancelledError | None = None

    @coroutine
    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """Return the result of the call; raises a cancellation that came meanwhile instead."""
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
                    except Exception:  # noqa: BLE001 - the future's: raised by `send` below
                        pass
                    if awaited.done():
                        break
                    next(awaited.__await__())  # a task accepts only what was just awaited
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
    """Continue in a task of its own; a cancellation of the caller is raised when that has ended."""
    task = asyncio.ensure_future(_as_coroutine(work, awaited))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # else asyncio logs that it was never retrieved
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


@coroutine
def agather_shielded(
    _: Parallel, *calls: Callable[[], Coroutine[Any, Any, T]]
) -> Generator[Any, Any, list[T]]:
    """Run the calls side by side, as ``agather``, where the caller is under a shield.

    They share the caller's task while they await ShieldedFutures: a task for each, and one for the
    shield, take a tenth of the CPU of a cascade.
    """
    strands = [_Strand(call()) for call in calls]
    for strand in strands:
        strand.step()
    for strand in strands[1:]:
        strand.watch()  # the first one is awaited below
    for strand in strands:
        while (awaited := strand.awaited) is not None:
            if not awaited.done():
                awaited.remove_done_callback(strand.go_on)
                yield from _until_done(awaited)
            strand.step()
    return [strand.outcome() for strand in strands]


@coroutine
def _until_done(awaited: asyncio.Future[Any]) -> Generator[Any, Any, None]:
    """Wait for a future, whatever comes of it."""
    while True:
        try:  # noqa: SIM105 - faster than suppress()
            yield awaited
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - raised in the strand
            pass
        if awaited.done():
            return
        next(awaited.__await__())  # a task accepts only what was just awaited


async def _in_task(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Continue in a task of its own, and await a ShieldedFuture until that has ended."""
    task = asyncio.ensure_future(_as_coroutine(work, awaited))
    ended: ShieldedFuture[None] = ShieldedFuture()

    def end(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(end)
    await ended
    return task.result()


class _Strand(Generic[T]):
    """A coroutine that runs beside others of one task; it goes on as soon as its future is done."""

    __slots__ = ("_error", "_result", "_work", "awaited")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._result: T
        self.awaited: asyncio.Future[Any] | None = None  # None: it has ended

    def step(self) -> None:
        """Go on up to the next future."""
        try:
            following = self._work.send(None)
        except StopIteration as end:
            self.awaited, self._result = None, end.value
            return
        except BaseException as error:  # noqa: BLE001 - raised when all have ended
            self.awaited, self._error = None, error
            return
        if type(following) is not ShieldedFuture:
            self._work = _in_task(self._work, following)
            following = self._work.send(None)
        self.awaited = following

    def watch(self) -> None:
        """Go on by itself as soon as its future is done."""
        if self.awaited is not None:
            self.awaited.add_done_callback(self.go_on)

    def go_on(self, awaited: asyncio.Future[Any]) -> None:
        """Go on after ``awaited``, unless another step came first."""
        if awaited is self.awaited:
            self.step()
            self.watch()

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

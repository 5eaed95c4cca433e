"""Waiting that a cancellation does not end while a shield is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Steady(asyncio.Future[T]):
    """A future for which whoever is shielded waits in its own task.

    ``Task.cancel`` asks the future that the task waits for to be cancelled. Under a shield this
    one says yes and goes on; the shield remembers that the task is to be stopped.
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
    """Runs a coroutine to its end in the task that asks for it, which saves a task of its own.

    That goes as long as it waits for Steady futures only; as soon as it waits for anything else
    it is carried on in another task. So what runs under a shield must not depend on the task it
    began in: an ``asyncio.timeout`` belongs into a task that is made for it.
    """

    cancellation: asyncio.CancelledError | None = None

    @coroutine
    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """The result; a cancellation that came meanwhile is raised in its place."""
        work = call()
        try:
            waits_for = work.send(None)
            while type(waits_for) is Steady:
                waits_for._shield = self  # noqa: SLF001 - they are made for each other
                while True:
                    try:
                        yield waits_for
                    except asyncio.CancelledError as error:
                        self.cancellation = error
                    except Exception:  # noqa: BLE001 - the future's own, for the one who waits
                        pass
                    if waits_for.done():
                        break
                    waits_for._asyncio_future_blocking = True  # noqa: SLF001 - as if awaited
                waits_for = work.send(None)
            result: T = yield from _carried_on(work, waits_for).__await__()
        except StopIteration as end:
            result = end.value
        except (Exception, asyncio.CancelledError):
            if self.cancellation is not None:
                self._stop()
            raise
        if self.cancellation is not None:
            self._stop()
        return result

    def _stop(self) -> None:
        cancellation, self.cancellation = self.cancellation, None
        assert cancellation is not None
        try:
            raise cancellation from None
        finally:
            del cancellation  # its traceback holds this frame


async def _carried_on(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    """In a task of its own; a cancellation of the caller is raised when that is over."""
    task = asyncio.ensure_future(_resumed(work, waits_for))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # heard, so that nobody complains
        raise


async def _resumed(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    return await _from(work, waits_for)


@coroutine
def _from(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that waits already."""
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - for the one who waits
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
